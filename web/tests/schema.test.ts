import { expect, test } from 'vitest';
import { FormError, objectOf, type Schema, shapeOf } from '../src/parts/schema';

const SCHEMA: Schema = {
  type: 'object',
  required: ['title', 'status', 'count'],
  properties: {
    title: { type: 'string' },
    status: { type: ['string', 'null'], enum: ['open', 'done', null] },
    count: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
    due: { type: 'string', format: 'date' },
    tags: { type: 'array', items: { type: 'string' } },
    place: { $ref: '#/$defs/Place' },
    anything: {},
  },
  $defs: { Place: { type: 'object', properties: { city: { type: 'string' }, far: { type: 'boolean' } } } },
};

test('every schema has a kind of field', () => {
  const kinds = Object.entries(SCHEMA.properties ?? {}).map(([name, schema]) => [name, shapeOf(schema, SCHEMA).kind]);
  expect(Object.fromEntries(kinds)).toEqual({ title: 'text', status: 'choice', count: 'integer', due: 'date', tags: 'lines', place: 'object', anything: 'json' });
  expect(shapeOf({ $ref: '#/$defs/Loop' }, { $defs: { Loop: { $ref: '#/$defs/Loop' } } }).kind).toBe('json');
});

test('texts become the value that the schema wants', () => {
  const texts = { title: 'A', status: '', count: '', due: '2026-11-18', tags: ' a \n\nb', place: { city: 'Bonn', far: 'true' }, anything: '{"x": [1]}' };
  expect(objectOf(texts, SCHEMA, SCHEMA)).toEqual({ title: 'A', status: null, count: null, due: '2026-11-18', tags: ['a', 'b'], place: { city: 'Bonn', far: true }, anything: { x: [1] } });
  expect(objectOf({ title: 'A', count: '3' }, SCHEMA, SCHEMA)).toEqual({ title: 'A', status: null, count: 3 });
});

test('a text that is no value names its field', () => {
  for (const [name, text] of [['count', '3.5'], ['count', 'many'], ['anything', '{']] as const) {
    expect(() => objectOf({ title: 'A', [name]: text }, SCHEMA, SCHEMA)).toThrow(FormError);
  }
});
