import { expect, test } from 'vitest';
import { EventParser } from '../src/api/sse';

const STREAM = 'id: 1\nevent: init\ndata: {"a":1}\n\n: a comment\n\ndata: first\ndata: second\n\nevent: end\r\ndata: x\r\n\r\n';

test('a stream gives the same events however it is cut', () => {
  const whole = new EventParser().feed(STREAM);
  expect(whole).toEqual([
    { id: '1', name: 'init', data: '{"a":1}' },
    { id: null, name: 'message', data: 'first\nsecond' },
    { id: null, name: 'end', data: 'x' },
  ]);
  for (let size = 1; size < 12; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < STREAM.length; at += size) events.push(...parser.feed(STREAM.slice(at, at + size)));
    expect(events).toEqual(whole);
  }
});
