"""Describes the REST API's operations as an OpenAPI document, from the types that their handlers are served by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from controller_service.api.rest.live import EVENTS_TYPE
from controller_service.api.rest.operation import JSON_TYPE, RestOperation
from pravega_common.version import __version__

OPENAPI_VERSION: Final = "3.1.0"
"""The first one whose schemas are JSON Schema, which is what pydantic writes."""
_REFERENCES: Final = "#/components/schemas/{model}"
_MEANINGS: Final[Mapping[int, str]] = {
    200: "Done.",
    201: "Created.",
    204: "Done.",
    400: "The request is malformed, or asks for what cannot be. The status line says what is wrong.",
    403: "The quota of the scope does not admit it, as the status line says, or the caller may not do it.",
    404: "What the path names does not exist.",
    409: "The name is taken.",
    412: "What is to be deleted is not sealed, or not empty.",
    413: "The body is longer than a request may be.",
    429: "As many clients as may listen at once do so already.",
    500: "The controller could not do it; the status line says why. What it began may be done all the same.",
}

Schemas = dict[tuple[RestOperation, JsonSchemaMode], dict[str, Any]]


def document(operations: Sequence[RestOperation]) -> dict[str, Any]:
    """The document, as JSON."""
    schemas, components = _schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, schemas)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {
            "title": "Controller",
            "version": __version__,
            "description": "Administers scopes, streams and reader groups, and tells the health of a controller, "
            "as Pravega's REST API does. What is below /v1/window is ours, for the page at /; an answer of type "
            "text/event-stream has the schema in the data of each event.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _schemas(operations: Sequence[RestOperation]) -> tuple[Schemas, dict[str, Any]]:
    """The schemas of bodies ("validation") and answers ("serialization"), and those that they refer to."""
    inputs: list[tuple[RestOperation, JsonSchemaMode, TypeAdapter[Any]]] = []
    for operation in operations:
        if operation.body is not None:
            inputs.append((operation, "validation", TypeAdapter(operation.body)))
        if operation.answer is not None:
            inputs.append((operation, "serialization", operation.answer))
    schemas, definitions = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCES)
    return schemas, definitions.get("$defs", {})


def _described(operation: RestOperation, schemas: Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.body is not None:
        schema = schemas[operation, "validation"]
        found["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema}}}
    return found


def _operation_id(operation: RestOperation) -> str:
    """An id made of the method and the path: ``get_v1_scopes_scope``."""
    words = operation.path.replace("{", "").replace("}", "").replace("-", "_").split("/")
    return "_".join([operation.method.lower(), *filter(None, words)])


def _path_parameters(operation: RestOperation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in operation.path_names
    ]


def _query_parameters(operation: RestOperation) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema()
    required = schema.get("required", ())
    parameters = []
    for name, described in schema["properties"].items():
        meaning = {"description": described.pop("description")} if "description" in described else {}
        parameters.append({"name": name, "in": "query", "required": name in required, "schema": described} | meaning)
    return parameters


def _responses(operation: RestOperation, schemas: Schemas) -> dict[str, Any]:
    limits = (HTTPStatus.REQUEST_ENTITY_TOO_LARGE,) if operation.body is not None else ()
    statuses = (operation.status, *operation.errors, *limits, HTTPStatus.INTERNAL_SERVER_ERROR)
    responses: dict[str, Any] = {str(int(status)): {"description": _MEANINGS[status]} for status in statuses}
    if operation.answer is not None:
        schema = schemas[operation, "serialization"]
        wanted = {"type": "array", "items": schema} if operation.gives_items and not operation.is_live else schema
        kind = EVENTS_TYPE if operation.is_live else JSON_TYPE
        responses[str(operation.status)]["content"] = {kind: {"schema": wanted}}
    return responses
