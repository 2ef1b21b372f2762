/** What a form needs to know of a JSON Schema, and the value that the form's texts stand for. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  format?: string;
  default?: unknown;
  minimum?: number;
  maximum?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
}

export type FieldKind = 'choice' | 'boolean' | 'integer' | 'number' | 'text' | 'date' | 'lines' | 'object' | 'json';

export interface FieldShape {
  kind: FieldKind;
  nullable: boolean;
  choices: unknown[];
  schema: Schema;
}

const typesOf = (schema: Schema) => (Array.isArray(schema.type) ? schema.type : schema.type ? [schema.type] : []);

/** Follows references inside the document, and takes the one variant beside null. */
function resolved(schema: Schema, root: Schema, depth = 0): { schema: Schema; nullable: boolean } {
  if (depth > 8) return { schema: {}, nullable: false };
  if (schema.$ref) {
    const name = schema.$ref.replace(/^#\/\$defs\//, '');
    const found = resolved(root.$defs?.[name] ?? {}, root, depth + 1);
    return { ...found, schema: { ...found.schema, description: schema.description ?? found.schema.description } };
  }
  const variants = schema.anyOf ?? schema.oneOf ?? (schema.allOf?.length === 1 ? schema.allOf : undefined);
  if (variants) {
    const others = variants.filter((variant) => !typesOf(variant).every((type) => type === 'null') || typesOf(variant).length === 0);
    if (others.length === 1 && others[0]) {
      const found = resolved(others[0], root, depth + 1);
      return { schema: { ...found.schema, description: schema.description ?? found.schema.description }, nullable: found.nullable || others.length < variants.length };
    }
  }
  return { schema, nullable: typesOf(schema).includes('null') };
}

/** Which kind of field a schema is edited with. */
export function shapeOf(given: Schema, root: Schema): FieldShape {
  const { schema, nullable } = resolved(given, root);
  const types = typesOf(schema).filter((type) => type !== 'null');
  const shape = (kind: FieldKind, choices: unknown[] = []): FieldShape => ({ kind, nullable, choices, schema });
  if (schema.enum) return shape('choice', schema.enum.filter((choice) => choice !== null));
  if (schema.const !== undefined) return shape('choice', [schema.const]);
  if (types.length !== 1) return shape('json');
  switch (types[0]) {
    case 'boolean':
      return shape('boolean');
    case 'integer':
      return shape('integer');
    case 'number':
      return shape('number');
    case 'string':
      return shape(schema.format === 'date' ? 'date' : 'text');
    case 'array': {
      const item = schema.items ? shapeOf(schema.items, root).kind : 'json';
      return shape(item === 'text' || item === 'choice' ? 'lines' : 'json');
    }
    case 'object':
      return shape(schema.properties ? 'object' : 'json');
    default:
      return shape('json');
  }
}

/** The texts of a form: one per field, nested like the schema. */
export type FormValue = string | { [name: string]: FormValue };

export class FormError extends Error {
  constructor(readonly field: string) {
    super(field);
  }
}

/** The value of a field; undefined if it was left empty. */
function valueOf(text: FormValue | undefined, shape: FieldShape, root: Schema, path: string): unknown {
  if (shape.kind === 'object') return objectOf(typeof text === 'object' ? text : {}, shape.schema, root, path);
  const plain = typeof text === 'string' ? text : '';
  if (plain.trim() === '') return undefined;
  switch (shape.kind) {
    case 'choice':
      return shape.choices.find((choice) => String(choice) === plain) ?? plain;
    case 'boolean':
      return plain === 'true';
    case 'integer':
    case 'number': {
      const number = Number(plain);
      if (!Number.isFinite(number) || (shape.kind === 'integer' && !Number.isInteger(number))) throw new FormError(path);
      return number;
    }
    case 'lines':
      return plain.split('\n').map((line) => line.trim()).filter(Boolean);
    case 'json':
      try {
        return JSON.parse(plain) as unknown;
      } catch {
        throw new FormError(path);
      }
    default:
      return plain;
  }
}

/** The object that the texts stand for. Empty fields are left out; where the schema requires them and allows null, they are null. */
export function objectOf(texts: { [name: string]: FormValue }, schema: Schema, root: Schema, path = ''): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const shape = shapeOf(property, root);
    const value = valueOf(texts[name], shape, root, path ? `${path}.${name}` : name);
    const required = schema.required?.includes(name) ?? false;
    const empty = value === undefined || (shape.kind === 'object' && !required && Object.keys(value as object).length === 0);
    if (!empty) out[name] = value;
    else if (required && shape.nullable) out[name] = null;
    else if (required && shape.kind === 'text') out[name] = '';
    else if (required) throw new FormError(path ? `${path}.${name}` : name);
  }
  return out;
}
