/** Turns of a conversation as a person reads them, built from the stored messages and from the events, live or replayed. */
import type { Message } from '../../api/types';

export interface ToolState {
  job: string;
  tool: string;
  status: string;
  tookMs: number | null;
  cacheHit: boolean;
  arguments?: unknown;
  approval?: string;
  /** The server that the model's provider would call. */
  server?: string;
  data?: unknown;
}

/** A piece of the answer: the text of a step, or a tool call, in the order in which they appeared. */
export type Item = { kind: 'text'; step: number; content: string } | { kind: 'call'; call: ToolState };

export interface TurnState {
  id: string;
  user: string;
  createdAt: string;
  status: string;
  items: Item[];
  error: { code: string; message: string } | null;
  usage: { total_tokens: number; cost_usd: number | null } | null;
  /** Grows with every change, so that a turn that did not change is not drawn again. */
  version: number;
}

export interface ChatEvent {
  name: string;
  data: Record<string, unknown>;
  turnId?: string | null;
  createdAt?: string;
}

const TERMINAL = ['completed', 'failed', 'canceled'];

export const isOver = (turn: TurnState) => TERMINAL.includes(turn.status);

export function newTurn(id: string, user: string, createdAt = new Date().toISOString()): TurnState {
  return { id, user, createdAt, status: 'running', items: [], error: null, usage: null, version: 0 };
}

const text = (value: unknown) => (typeof value === 'string' ? value : '');
const number = (value: unknown) => (typeof value === 'number' ? value : 0);

function textOf(turn: TurnState, step: number): Item & { kind: 'text' } {
  const found = turn.items.find((item) => item.kind === 'text' && item.step === step);
  if (found?.kind === 'text') return found;
  const made = { kind: 'text' as const, step, content: '' };
  turn.items.push(made);
  return made;
}

function callOf(turn: TurnState, data: Record<string, unknown>): ToolState {
  const job = text(data.job_id);
  for (const item of turn.items) if (item.kind === 'call' && item.call.job === job) return item.call;
  const call: ToolState = { job, tool: text(data.tool), status: 'queued', tookMs: null, cacheHit: false };
  turn.items.push({ kind: 'call', call });
  return call;
}

function finish(turn: TurnState, data: Record<string, unknown>) {
  turn.status = text(data.status) || 'completed';
  const message = data.message as { content?: string } | undefined;
  const texts = turn.items.filter((item) => item.kind === 'text');
  const last = texts.at(-1);
  const content = message?.content ?? '';
  if (content && (!last || last.content !== content)) {
    const ended = turn.items.at(-1);
    if (ended?.kind === 'text') ended.content = content;
    else turn.items.push({ kind: 'text', step: Number.MAX_SAFE_INTEGER, content });
  }
  turn.usage = (data.usage as TurnState['usage']) ?? null;
  for (const result of (data.tool_results as Record<string, unknown>[] | undefined) ?? []) {
    const call = callOf(turn, result);
    call.status = text(result.status) || call.status;
    call.tookMs = number(result.took_ms);
    call.data = result.data;
  }
}

/** Applies an event to its turn. */
export function apply(turn: TurnState, { name, data }: ChatEvent) {
  turn.version += 1;
  switch (name) {
    case 'init':
      turn.status = 'running';
      break;
    case 'assistant_token':
      textOf(turn, number(data.step)).content += text(data.content);
      turn.status = 'running';
      break;
    case 'assistant_snapshot':
      textOf(turn, number(data.step)).content = text(data.content);
      break;
    case 'assistant_reset':
      textOf(turn, number(data.step)).content = '';
      break;
    case 'tool_started': {
      const call = callOf(turn, data);
      call.status = 'running';
      call.arguments = data.arguments ?? call.arguments;
      turn.status = 'running';
      break;
    }
    case 'tool_finished': {
      const call = callOf(turn, data);
      call.status = text(data.status);
      call.tookMs = number(data.took_ms);
      call.cacheHit = data.cache_hit === true;
      break;
    }
    case 'approval_required': {
      const call = callOf(turn, data);
      call.status = 'awaiting_approval';
      call.approval = text(data.approval_id);
      call.server = text(data.server_label);
      call.arguments = data.arguments ?? call.arguments;
      turn.status = 'awaiting_approval';
      break;
    }
    case 'final':
      finish(turn, data);
      break;
    case 'error':
      turn.status = data.code === 'canceled' ? 'canceled' : 'failed';
      turn.error = { code: text(data.code), message: text(data.message) };
      break;
  }
}

/** Turns from the stored messages alone: for conversations whose events are no longer kept, or that were imported. */
export function turnsOfMessages(messages: Message[]): TurnState[] {
  const turns: TurnState[] = [];
  for (const message of messages) {
    let turn = turns.find((known) => message.turn_id && known.id === message.turn_id);
    if (message.role === 'user' && !turn) {
      turn = newTurn(message.turn_id ?? message.id, message.content, message.created_at);
      turn.status = 'completed';
      turns.push(turn);
      continue;
    }
    turn ??= turns.at(-1);
    if (!turn) {
      turn = newTurn(message.turn_id ?? message.id, '', message.created_at);
      turn.status = 'completed';
      turns.push(turn);
    }
    if (message.role === 'assistant' && message.content) turn.items.push({ kind: 'text', step: message.seq ?? turn.items.length, content: message.content });
  }
  return turns;
}
