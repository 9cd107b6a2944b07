"""Holds the deployment files against what the services accept: settings, commands, ports, paths of probes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller_service.api.rest.access_guard import OPEN
from controller_service.config import ControllerConfig
from pravega_common.services.settings import ServiceSettings
from segment_service.config import SegmentStoreConfig
from tests.support.plain_yaml import read_yaml
from tests.support.prometheus import program
from tests.support.repository import ROOT

DEPLOY = ROOT / "conf" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
CONFIGS: dict[str, type[ServiceSettings]] = {"segment-store": SegmentStoreConfig, "controller": ControllerConfig}
PREFIXES = {"segment-store": "PRAVEGA_SEGMENT_STORE_", "controller": "PRAVEGA_CONTROLLER_"}
KUBERNETES_VERSIONS = ("1.25", "1.37")
STORE_PAGES = (ROOT / "segment_service" / "health" / "status_page.py").read_text()


def manifests() -> Iterator[dict[str, Any]]:
    for file in sorted(KUBERNETES.glob("*.yaml")):
        yield from read_yaml(file.read_text())


def workloads() -> dict[str, dict[str, Any]]:
    """The containers of our services, by their names."""
    found = {}
    for one in manifests():
        if one["kind"] == "StatefulSet":
            for container in one["spec"]["template"]["spec"]["containers"]:
                found[container["name"]] = container
    return {name: found[name] for name in CONFIGS}


def settings_file() -> dict[str, str]:
    lines = (KUBERNETES / "settings.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def kubernetes_environment(name: str) -> dict[str, str]:
    given = {item["name"]: item.get("value", "from-elsewhere") for item in workloads()[name]["env"]}
    expanded = {key: re.sub(r"\$\((\w+)\)", lambda match: match[1].lower(), value) for key, value in given.items()}
    return {key: value for key, value in {**settings_file(), **expanded}.items() if key.startswith(PREFIXES[name])}


def compose_services() -> dict[str, dict[str, Any]]:
    (document,) = read_yaml((DEPLOY / "container" / "compose.yml").read_text())
    services: dict[str, dict[str, Any]] = document["services"]
    return services


def environments() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Where, which service, and its variables."""
    for name in CONFIGS:
        yield f"kubernetes {name}", name, kubernetes_environment(name)
    for service, content in compose_services().items():
        if content["image"] == "pravega-spark":
            filled = {
                key: re.sub(r"\$\{\w+(?::-([^}]*)|:\?)\}", lambda match: match[1] or "filled", str(value))
                for key, value in content["environment"].items()
            }
            yield f"compose {service}", content["command"][0], filled


@pytest.mark.parametrize(("service", "variables"), [pytest.param(s, v, id=i) for i, s, v in environments()])
def test_the_services_accept_their_environment(
    service: str, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(name.startswith(PREFIXES[service]) for name in variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = CONFIGS[service].load(ROOT / "conf" / f"{service}.toml")
    section = config.model_dump()["store" if service == "segment-store" else "controller"]
    listen, published = section["listen"], section["published"]
    assert listen.startswith("0.0.0.0:") and listen.rpartition(":")[2] == published.rpartition(":")[2]
    assert not published.startswith(("0.0.0.0", "127."))


@pytest.mark.parametrize("name", CONFIGS)
def test_probes_ask_paths_that_exist_at_the_port_that_serves_them(name: str) -> None:
    container, variables = workloads()[name], kubernetes_environment(name)
    page = variables[f"{PREFIXES[name]}{'STORE__METRICS' if name == 'segment-store' else 'CONTROLLER__REST'}"]
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container[kind]["httpGet"]
        assert asked["port"] == int(page.rpartition(":")[2])
        known = f'"{asked["path"]}"' in STORE_PAGES if name == "segment-store" else ("GET", asked["path"]) in OPEN
        assert known, asked
    assert container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"]
    assert container["args"] == [name, "--config", f"/etc/pravega-spark/{name}.toml"]


def test_the_image_has_what_its_users_name() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    for file in re.findall(r"^COPY (conf/.*) /etc/pravega-spark/$", text, re.M)[0].split():
        assert (ROOT / file).is_file()
    assert 'ENTRYPOINT ["pravega-spark"]' in text and "USER 10001:10001" in text


def test_redis_of_compose_finds_the_folder_that_its_settings_name() -> None:
    """Redis goes there before it comes to ``--dir``, and ends where it is missing; the image has no such folder."""
    redis = compose_services()["redis"]
    (folder,) = re.findall(r'^dir "(.+)"$', (ROOT / "conf" / "redis.conf").read_text(), re.M)
    mounted = [volume.split(":")[1] for volume in redis["volumes"]]
    assert "../../redis.conf:/etc/redis.conf:ro" in redis["volumes"]
    assert folder in mounted + redis.get("tmpfs", [])
    assert redis["command"][redis["command"].index("--dir") + 1] in mounted


def test_redis_in_kubernetes_has_the_settings_that_keep_data() -> None:
    content = next(one for one in manifests() if one["kind"] == "ConfigMap")["data"]["redis.conf"]
    documented = (ROOT / "conf" / "redis.conf").read_text()

    def settings(text: str) -> dict[str, str]:
        lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
        return {name: value for name, value in lines if name not in ("bind", "dir", "maxmemory")}

    assert settings(content) == settings(documented)


def test_every_secret_is_named_in_the_readme() -> None:
    text = (DEPLOY / "README.md").read_text()
    names = set(re.findall(r"pravega-(?:redis|tier2|cluster-keys)\b", "".join(map(str, manifests()))))
    assert len(names) == 3 and all(f"`{name}`" in text for name in names)


def test_every_resource_is_part_of_the_kustomization() -> None:
    (kustomization,) = read_yaml((KUBERNETES / "kustomization.yaml").read_text())
    there = {file.name for file in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the path")
def test_kustomize_renders_all() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nkind: ") == sum(1 for _ in manifests())
    assert done.stdout.count("image: registry.example.org/pravega-spark:latest") == 4


def kubernetes_refuses(file: Path, version: str) -> str:
    """What the schemas of a version of Kubernetes find wrong with the resources of a file; empty for nothing."""
    command = [str(program("kubernetes-validate")), "--strict", "--quiet", "-k", version, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = done.stdout + done.stderr
    assert (done.returncode == 0) == (found == ""), found
    return found


@pytest.mark.skipif(program("kubernetes-validate") is None, reason="scripts/setup --kubernetes was not run")
@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_the_manifests(version: str, tmp_path: Path) -> None:
    files = sorted(set(KUBERNETES.glob("*.yaml")) - {KUBERNETES / "kustomization.yaml"})
    if shutil.which("kubectl") is not None:
        rendered = tmp_path / "rendered.yaml"
        rendered.write_bytes(subprocess.run(["kubectl", "kustomize", str(KUBERNETES)], capture_output=True).stdout)
        files.append(rendered)
    assert [kubernetes_refuses(file, version) for file in files] == [""] * len(files)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((KUBERNETES / "controller.yaml").read_text().replace("replicas: 2", "replicas: two", 1))
    assert "replicas" in kubernetes_refuses(wrong, version)
    wrong.write_text((KUBERNETES / "controller.yaml").read_text().replace("replicas:", "replica:", 1))
    assert "replica" in kubernetes_refuses(wrong, version)


def has_compose() -> bool:
    asked = ["docker", "compose", "version"]
    return (
        shutil.which("docker") is not None and subprocess.run(asked, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not has_compose(), reason="docker compose is not here; it needs no engine for this")
def test_compose_reads_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_REDIS_PASSWORD", "secret")
    command = ["docker", "compose", "-f", str(DEPLOY / "container" / "compose.yml"), "config", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["services"].keys() == compose_services().keys()
    monkeypatch.delenv("PRAVEGA_REDIS_PASSWORD")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode != 0 and "PRAVEGA_REDIS_PASSWORD" in refused.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
@pytest.mark.parametrize("name", CONFIGS)
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / f"pravega-spark-{name}.service").read_text()
    assert f"ExecStart=/opt/pravega-spark/bin/pravega-spark {name} --config /etc/pravega-spark/{name}.toml\n" in unit
    here = unit.replace("/opt/pravega-spark/bin/pravega-spark", "/bin/true").replace("=pravega-spark\n", "=root\n")
    file = tmp_path / f"pravega-spark-{name}.service"
    file.write_text(here)
    done = subprocess.run(["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("wrong", ["a: b: c", "a: {b: c}", "a: b\na: c", "- a\n   - b", "a: 'b", "\ta: b", "a"])
def test_the_reader_refuses_what_it_does_not_know(wrong: str) -> None:
    with pytest.raises(ValueError):
        read_yaml(wrong)
