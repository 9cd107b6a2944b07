// Shows the operations of /openapi.json and makes calls with what is filled in. Texts become text nodes, never markup.

import { indentedJson } from "/window/json_text.js";

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A value that a schema allows, to begin with.
function example(schema, schemas) {
  if (schema.$ref) return example(schemas[schema.$ref.split("/").pop()], schemas);
  if (schema.anyOf) return example(schema.anyOf[0], schemas);
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return schema.enum[0];
  if (schema.type === "integer") return schema.minimum || 0;
  if (schema.type === "array") return [];
  if (schema.type !== "object") return "";
  const required = schema.required || [];
  return Object.fromEntries(required.map((name) => [name, example(schema.properties[name], schemas)]));
}

function choices(schema) {
  const option = [schema, ...(schema.anyOf || [])].find((one) => one.enum || one.const !== undefined);
  return option && (option.enum || [option.const]);
}

function parameterField(parameter) {
  const values = choices(parameter.schema);
  const input = values
    ? element("select", {}, ...["", ...values].map((value) => element("option", { value }, value)))
    : element("input", { autocomplete: "off" });
  input.name = parameter.name;
  input.required = parameter.required;
  const meaning = parameter.description ? ": " + parameter.description : "";
  return { parameter, input, label: element("label", {}, parameter.name + meaning, input) };
}

function urlOf(path, fields) {
  const query = new URLSearchParams();
  let url = path;
  for (const { parameter, input } of fields) {
    if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(parameter.name, input.value);
  }
  return query.size ? `${url}?${query}` : url;
}

async function call(method, url, body, output) {
  output.textContent = `${method} ${url} …`;
  const started = performance.now();
  try {
    const answer = await fetch(url, {
      method,
      body,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
    });
    const text = await answer.text();
    const took = Math.round(performance.now() - started);
    output.textContent = `${answer.status} ${answer.statusText} (${took} ms)\n\n${indented(text)}`;
  } catch (error) {
    output.textContent = `No answer: ${error.message}`;
  }
}

function indented(text) {
  try {
    return indentedJson(text);
  } catch {
    return text;
  }
}

function operationView(method, path, operation, schemas) {
  const fields = operation.parameters.map(parameterField);
  const media = operation.requestBody && operation.requestBody.content["application/json"];
  const body = media && element("textarea", { value: JSON.stringify(example(media.schema, schemas), null, 2) });
  const output = element("pre", { hidden: true });
  const form = element("form", {}, ...fields.map((field) => field.label));
  if (body) form.append(element("label", {}, "body", body));
  form.append(element("button", {}, "Send"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    output.hidden = false;
    call(method.toUpperCase(), urlOf(path, fields), body ? body.value : undefined, output);
  });
  const answers = Object.entries(operation.responses).map(([status, answer]) =>
    element("tr", {}, element("td", {}, status), element("td", {}, answer.description)),
  );
  const title = [
    element("span", { className: "method" }, method.toUpperCase()), element("code", {}, path), operation.summary,
  ];
  return element("details", {}, element("summary", {}, ...title), form, output, element("table", {}, ...answers));
}

function show(api) {
  const about = document.getElementById("about");
  const link = element("a", { href: "/openapi.json" }, "/openapi.json");
  about.replaceChildren(`${api.info.description} Version ${api.info.version}, described by `, link, ".");
  const groups = new Map();
  for (const [path, operations] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const tag = operation.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationView(method, path, operation, api.components.schemas));
    }
  }
  const main = document.getElementById("operations");
  for (const [tag, views] of groups) main.append(element("h2", {}, tag), ...views);
}

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("about").textContent = `/openapi.json cannot be loaded: ${error.message}`;
  });
