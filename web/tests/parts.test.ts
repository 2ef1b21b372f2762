import { expect, test } from 'vitest';
import { address } from '../src/api/client';
import { safeAddress } from '../src/parts/safe-link';
import { type CallRow, merge } from '../src/views/call-list';

test('only http, https and mailto lead anywhere, and the host is the real one', () => {
  expect(safeAddress('https://user:secret@host.example:8443/a?b#c')).toEqual({ href: 'https://host.example:8443/a?b#c', host: 'host.example:8443' });
  expect(safeAddress('mailto:ana%40x@demo.example')).toEqual({ href: 'mailto:ana%40x@demo.example', host: 'ana@x@demo.example' });
  for (const text of ['javascript:alert(1)', ' JaVaScript:alert(1)', 'data:text/html,x', 'file:///etc/passwd', '//host.example', '/api/keys', 'x', '', 'blob:https://a/b', 'vbscript:x']) {
    expect(safeAddress(text), text).toBeNull();
  }
});

test('values in a path and a query cannot leave their place', () => {
  expect(address('/api/tools/{name}/invoke', { path: { name: '../a?b' } })).toBe('/api/tools/..%2Fa%3Fb/invoke');
  expect(address('/api/x', { query: { a: 'b&c', none: undefined, empty: '', zero: 0 } })).toBe('/api/x?a=b%26c&zero=0');
});

const row = (id: string, status = 'succeeded'): CallRow => ({ id, tool: 't', status, createdAt: '', tookMs: 1, attempt: 1, code: null, tainted: false, cacheHit: false, summary: '' });

test('the newest page is put over the known rows', () => {
  const known = [row('5'), row('4', 'running'), row('3'), row('2'), row('1')];
  expect(merge(known, [row('5'), row('4', 'running'), row('3')], false)).toBeNull();
  const merged = merge(known, [row('6'), row('5'), row('4')], false);
  expect(merged?.map((one) => `${one.id} ${one.status}`)).toEqual(['6 succeeded', '5 succeeded', '4 succeeded', '3 succeeded', '2 succeeded', '1 succeeded']);
  expect(merged?.[1]).toBe(known[0]);
  expect(merge(known, [row('6')], true)?.map((one) => one.id)).toEqual(['6']);
});
