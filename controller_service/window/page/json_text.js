// Indents JSON as it is written. A parsed number would be a double, and one of more than 15 digits another number.

const token = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

/** @param {string} text @returns {string} throws `SyntaxError` for what is no JSON */
export function indentedJson(text) {
  JSON.parse(text);
  const tokens = text.match(token) ?? [];
  const made = [];
  let depth = 0;
  const line = () => made.push("\n", "  ".repeat(depth));
  for (const [index, one] of tokens.entries()) {
    const isEmpty = "{[".includes(tokens[index - 1] ?? " ") && "}]".includes(one);
    if ("}]".includes(one)) {
      depth -= 1;
      if (!isEmpty) line();
    }
    made.push(one.startsWith('"') ? JSON.stringify(JSON.parse(one)) : one);
    if ("{[".includes(one)) {
      depth += 1;
      if (!"}]".includes(tokens[index + 1])) line();
    } else if (one === ",") line();
    else if (one === ":") made.push(" ");
  }
  return made.join("");
}
