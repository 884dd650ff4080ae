"""schema - whether a JSON document fits a JSON schema, of which docs/operating has one.

Only the keywords of KNOWN are read, and any other one in a schema is an error, so that none is
passed over.  A member that an object's `properties` lack is a fault here: the published schema lets
later versions add members, and the tests see that it has all of this version's."""

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
         "integer": int, "number": (int, float)}
KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "enum", "required",
         "properties", "items", "minimum", "maximum"}


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def faults_of_number(value, schema, at):
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{at}: {value} < {schema['minimum']}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{at}: {value} > {schema['maximum']}"


def faults_of_object(value, schema, root, at):
    members = schema.get("properties", {})
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at}: no {name}"
    for name, member in value.items():
        if name in members:
            yield from faults(member, members[name], root, f"{at}.{name}")
        elif "properties" in schema:
            yield f"{at}: unknown member {name}"


def faults(value, schema, root, at="status"):
    """Yields a line for each part that does not fit; `root` has the definitions."""
    unknown = set(schema) - KNOWN
    if unknown:
        raise ValueError(f"{at}: keywords that schema.py does not know: {sorted(unknown)}")
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(is_type(value, name) for name in names):
        yield f"{at}: {value!r} is no {' or '.join(names)}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from faults_of_number(value, schema, at)
    if isinstance(value, dict):
        yield from faults_of_object(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from faults(item, schema["items"], root, f"{at}[{i}]")
