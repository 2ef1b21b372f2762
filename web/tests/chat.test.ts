import { expect, test } from 'vitest';
import { apply, newTurn, turnsOfMessages } from '../src/views/chat/turns';
import type { Message } from '../src/api/types';

const JOB = 'job-1';

test('live and replayed events give the same turn', () => {
  const events: [string, Record<string, unknown>][] = [
    ['init', {}],
    ['assistant_token', { step: 0, content: 'Let me ' }],
    ['assistant_token', { step: 0, content: 'look.' }],
    ['assistant_snapshot', { step: 0, content: 'Let me look.' }],
    ['tool_started', { job_id: JOB, tool: 'get_todos', arguments: {} }],
    ['tool_finished', { job_id: JOB, tool: 'get_todos', status: 'succeeded', took_ms: 7, cache_hit: false }],
    ['assistant_token', { step: 1, content: 'Half an ans' }],
    ['assistant_reset', { step: 1 }],
    ['assistant_token', { step: 1, content: 'Two todos.' }],
    ['final', { status: 'completed', message: { content: 'Two todos.' }, usage: { total_tokens: 5, cost_usd: null }, tool_results: [{ job_id: JOB, tool: 'get_todos', status: 'succeeded', took_ms: 7, data: { count: 2 } }] }],
  ];
  const live = newTurn('t', 'todos', '');
  for (const [name, data] of events) apply(live, { name, data });
  const replayed = newTurn('t', 'todos', '');
  for (const [name, data] of events.filter(([name]) => name !== 'assistant_token' && name !== 'assistant_reset')) apply(replayed, { name, data });
  const call = { job: JOB, tool: 'get_todos', status: 'succeeded', tookMs: 7, cacheHit: false, arguments: {}, data: { count: 2 } };
  const texts = (turn: typeof live) => turn.items.map((item) => (item.kind === 'text' ? item.content : item.call));
  expect(texts(live)).toEqual(['Let me look.', call, 'Two todos.']);
  expect(texts(replayed)).toEqual(texts(live));
  expect([live.status, replayed.status]).toEqual(['completed', 'completed']);
});

test('an approval waits, and a canceled turn is no failure', () => {
  const turn = newTurn('t', 'order', '');
  apply(turn, { name: 'approval_required', data: { job_id: JOB, tool: 'create_request', approval_id: 'a', arguments: { title: 'x' } } });
  expect(turn.status).toBe('awaiting_approval');
  apply(turn, { name: 'error', data: { code: 'canceled', message: 'canceled' } });
  expect(turn.status).toBe('canceled');
});

test('a history without events is readable', () => {
  const message = (role: string, content: string, turn: string) => ({ id: content, role, content, turn_id: turn, created_at: '', conversation_id: '', metadata: {} }) as unknown as Message;
  const turns = turnsOfMessages([message('user', 'a', '1'), message('assistant', 'b', '1'), message('tool', 'c', '1'), message('user', 'd', '2'), message('assistant', 'e', '2')]);
  expect(turns.map((turn) => [turn.user, turn.items.length, turn.status])).toEqual([
    ['a', 1, 'completed'],
    ['d', 1, 'completed'],
  ]);
});
