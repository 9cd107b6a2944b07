"""Signs bearer tokens as an identity provider does, and publishes its keys."""

from __future__ import annotations

import json
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

ISSUER: Final = "https://identity.example"
AUDIENCE: Final = "pravega-cluster"
ALGORITHMS: Final = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm}
_RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
"""Making one takes a while; providers differ in their P-256 keys."""


class IdentityProvider:
    """Has a key of each algorithm, named as the algorithm; ``document`` is its JWKS."""

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.add("RS256", "RS256", _RSA)
        self.add("ES256", "ES256", ec.generate_private_key(ec.SECP256R1()))

    def add(self, key_id: str, algorithm: str, private: Any) -> None:
        self.keys[key_id] = algorithm, private

    @property
    def document(self) -> bytes:
        return json.dumps({"keys": [self.public(key_id) for key_id in self.keys]}).encode()

    def public(self, key_id: str) -> dict[str, Any]:
        """The JWK of a key."""
        algorithm, private = self.keys[key_id]
        made: dict[str, Any] = ALGORITHMS[algorithm].to_jwk(private.public_key(), as_dict=True)  # type: ignore[attr-defined]
        return {**made, "kid": key_id, "use": "sig", "alg": algorithm}

    def token(self, now_s: float, key_id: str = "ES256", /, **claims: Any) -> str:
        """A good token of ten minutes, but for what ``claims`` change; None takes a claim out."""
        algorithm, private = self.keys[key_id]
        good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(now_s) + 600}
        changed = {name: value for name, value in {**good, **claims}.items() if value is not None}
        return jwt.encode(changed, private, algorithm, headers={"kid": key_id})
