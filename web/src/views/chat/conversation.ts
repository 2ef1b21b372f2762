/**
 * The open conversation. A message is sent with `background`, and everything that happens is read from the conversation's events; so a page
 * that was reloaded in the middle of an answer goes on in the same way as one that sent the message.
 */
import { computed, signal } from '@preact/signals';
import { api, ApiError, json } from '../../api/client';
import { concerns, onHints } from '../../api/hints';
import { pause, readStream, type StreamEvent } from '../../api/sse';
import type { Message, StoredEvent } from '../../api/types';
import { asApiError, loadEnded, loadStarted } from '../../resource';
import { apply, isOver, newTurn, turnsOfMessages, type TurnState } from './turns';

export const conversationId = signal<string | null>(null);
export const turns = signal<TurnState[]>([]);
export const chatError = signal<ApiError | null>(null);
export const sending = signal(false);
/** Turns change in place, and the signal tells of it a moment later; whoever decides something asks this function. */
const isRunning = () => turns.peek().some((turn) => turn.status === 'running');
export const running = computed(() => (turns.value, isRunning()));

const PAGE = 1000;

let after = 0;
let work = new AbortController();
let following = false;
let frame = 0;

/** Shows the changes of one frame together: an answer arrives in many small pieces. */
function changed() {
  if (frame) return;
  frame = window.setTimeout(() => {
    frame = 0;
    turns.value = [...turns.value];
  }, 33);
}

function receive(name: string, data: Record<string, unknown>, turnId: string | null | undefined, createdAt?: string) {
  const id = (data.turn_id as string | undefined) ?? turnId;
  let turn = id ? turns.value.find((known) => known.id === id) : turns.value.findLast((known) => !isOver(known));
  if (!turn && id) {
    turn = newTurn(id, '', createdAt);
    turns.value = [...turns.value, turn];
    void fillTexts(work.signal);
  }
  if (!turn) return;
  apply(turn, { name, data });
  changed();
}

/** Starts with nothing: a new conversation. */
export function reset() {
  work.abort();
  work = new AbortController();
  following = false;
  after = 0;
  turns.value = [];
  chatError.value = null;
  conversationId.value = null;
}

async function allMessages(id: string, signal: AbortSignal): Promise<Message[]> {
  const messages: Message[] = [];
  let cursor: string | undefined;
  do {
    const page = await api.get('/api/conversations/{id}/messages', { path: { id }, query: { limit: PAGE, after: cursor }, signal });
    // Without `format` every message is a native one.
    messages.push(...(page.messages as Message[]));
    cursor = page.next_after ?? undefined;
  } while (cursor);
  return messages;
}

/** The texts that people wrote are messages and no events. */
async function fillTexts(signal: AbortSignal) {
  const id = conversationId.value;
  if (!id) return;
  const messages = await allMessages(id, signal).catch(() => []);
  if (signal.aborted) return;
  for (const turn of turns.value) {
    const message = messages.find((known) => known.role === 'user' && known.turn_id === turn.id);
    if (message && !turn.user) {
      turn.user = message.content;
      turn.version += 1;
    }
  }
  changed();
}

async function* storedEvents(id: string, signal: AbortSignal): AsyncGenerator<StoredEvent[]> {
  for (;;) {
    const page = await api.get('/api/conversations/{id}/events', { path: { id }, query: { after, limit: PAGE }, signal });
    if (page.events.length) yield page.events;
    if (page.next_after === null || page.next_after === undefined) return;
  }
}

/** Reads the events that are stored beyond the last one seen. */
async function catchUp(id: string, signal: AbortSignal) {
  try {
    for await (const events of storedEvents(id, signal)) {
      for (const event of events) {
        after = Math.max(after, event.seq);
        receive(event.type, event.data as Record<string, unknown>, event.turn_id, event.created_at);
      }
    }
  } catch (error) {
    const first = error instanceof ApiError && error.status === 410 ? (error.details as { first_seq?: number } | undefined)?.first_seq : undefined;
    if (!first || first - 1 <= after) throw error;
    after = first - 1;
    await catchUp(id, signal);
  }
}

/** Opens a conversation: what was said, what happened, and what is still happening. */
export async function openConversation(id: string) {
  if (conversationId.value === id) return;
  reset();
  conversationId.value = id;
  const { signal } = work;
  loadStarted();
  try {
    const known = turnsOfMessages(await allMessages(id, signal));
    if (signal.aborted) return;
    const before = new Map(known.map((turn) => [turn.id, turn.items]));
    for (const turn of known) turn.items = [];
    turns.value = known;
    await catchUp(id, signal).catch((error: unknown) => {
      if (!(error instanceof ApiError) || error.status !== 410) throw error;
    });
    // A turn whose events are gone keeps the texts of its messages.
    for (const turn of turns.value) if (!turn.items.length) turn.items = before.get(turn.id) ?? [];
    await checkOpenTurns(signal);
    changed();
    void follow();
  } catch (error) {
    if (!signal.aborted) chatError.value = asApiError(error);
  } finally {
    loadEnded();
  }
}

/** Stored events tell how a turn ended. One that has no end yet is asked for, because nothing of it may be stored so far. */
async function checkOpenTurns(signal: AbortSignal) {
  const last = turns.value.at(-1);
  if (!last || last.items.length > 0 || last.error) return;
  const turn = await api.get('/api/turns/{id}', { path: { id: last.id }, signal }).catch(() => null);
  if (turn && !['completed', 'failed', 'canceled', 'awaiting_approval'].includes(turn.status)) last.status = 'running';
}

/** Reads live events while a turn runs. The stream is closed when none does, because a browser has few connections to one host. */
export async function follow() {
  const id = conversationId.value;
  if (!id || following || !isRunning()) return;
  following = true;
  const { signal } = work;
  const stop = new AbortController();
  const onAbort = () => stop.abort();
  signal.addEventListener('abort', onAbort, { once: true });
  let wait = 250;
  while (!signal.aborted && isRunning()) {
    try {
      const take = (events: StreamEvent[]) => {
        for (const event of events) {
          if (event.id !== null) after = Math.max(after, Number(event.id));
          receive(event.name, JSON.parse(event.data) as Record<string, unknown>, null);
        }
        if (!isRunning()) stop.abort();
      };
      await readStream('/api/conversations/{id}/events', { path: { id }, query: { after }, signal: stop.signal }, take, () => (wait = 250));
    } catch (error) {
      if (stop.signal.aborted) break;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429) {
        chatError.value = error;
        break;
      }
    }
    if (!signal.aborted && isRunning()) await pause((wait = Math.min(2 * wait, 8000)), signal);
  }
  signal.removeEventListener('abort', onAbort);
  if (!signal.aborted) following = false;
}

function randomKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Sends a message. Returns the id of the conversation, or null if the server refused it. */
export async function sendMessage(message: string): Promise<string | null> {
  sending.value = true;
  chatError.value = null;
  const pending = newTurn('pending', message);
  turns.value = [...turns.value, pending];
  const { signal } = work;
  try {
    const body = { message, background: true, conversation_id: conversationId.value ?? undefined };
    const started = await json<{ conversation_id: string; turn_id: string }>('post', '/api/chat', { body, headers: { 'idempotency-key': randomKey() } });
    if (signal.aborted) return null;
    pending.id = started.turn_id;
    conversationId.value = started.conversation_id;
    // Another reader of this page may have made the turn from its first event already.
    turns.value = turns.value.filter((turn) => turn === pending || turn.id !== pending.id);
    void follow();
    return started.conversation_id;
  } catch (error) {
    turns.value = turns.value.filter((turn) => turn !== pending);
    chatError.value = asApiError(error);
    return null;
  } finally {
    sending.value = false;
  }
}

/** Cancels the turn that runs. */
export async function cancelTurn() {
  const open = turns.value.findLast((turn) => !isOver(turn));
  if (open && open.id !== 'pending') await api.post('/api/turns/{id}/cancel', { path: { id: open.id } });
}

/** Decides an approval, and goes on reading. */
export async function decide(approval: string, decision: 'approve' | 'deny') {
  await api.post('/api/approvals/{id}', { path: { id: approval }, body: { decision } });
  await refresh();
}

/** Reads what happened while no stream was open. */
export async function refresh() {
  const id = conversationId.value;
  if (!id || following) return;
  await catchUp(id, work.signal).catch(() => undefined);
  const waiting = turns.value.findLast((turn) => !isOver(turn));
  if (waiting?.status === 'awaiting_approval' && waiting.id !== 'pending') {
    const turn = await api.get('/api/turns/{id}', { path: { id: waiting.id } }).catch(() => null);
    if (turn && !['awaiting_approval', 'completed', 'failed', 'canceled'].includes(turn.status)) waiting.status = 'running';
  }
  changed();
  void follow();
}

/** Another page, a channel or an approver can make the conversation go on: the hints tell. */
export function watchHints(): () => void {
  return onHints((hints) => {
    if (conversationId.value && !following && !sending.value && concerns(hints, { kinds: ['turn', 'approval'] })) void refresh();
  });
}
