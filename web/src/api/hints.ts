/**
 * The one stream of hints of a page. A hint says that a row changed; whoever shows the row asks for it again. Hints are collected and handed on
 * together, so any number of them costs one pass of the page.
 */
import { signal } from '@preact/signals';
import { ApiError, signedOut } from './client';
import { pause, readStream, type StreamEvent } from './sse';

export type HintKind = 'call' | 'turn' | 'approval' | 'outbox' | 'alert';

/** The changed rows of one pass by kind: id and status. `reset` says that hints were lost. */
export interface HintBatch {
  reset: boolean;
  ids: Map<HintKind, Map<string, string>>;
}

type Listener = (batch: HintBatch) => void;

/** How long hints are collected before they are handed on. */
const COLLECT_MS = 400;

/** Whether the stream is open. */
export const live = signal(false);

const listeners = new Set<Listener>();
let batch: HintBatch = { reset: false, ids: new Map() };
let timer: ReturnType<typeof setTimeout> | undefined;

function handOn() {
  timer = undefined;
  const ready = batch;
  batch = { reset: false, ids: new Map() };
  for (const listener of [...listeners]) listener(ready);
}

function collect(events: StreamEvent[]) {
  for (const event of events) {
    if (event.name === 'reset') {
      batch.reset = true;
      continue;
    }
    let hint: { kind?: HintKind; id?: string; status?: string };
    try {
      hint = JSON.parse(event.data) as typeof hint;
    } catch {
      continue;
    }
    if (!hint.kind || !hint.id) continue;
    let ids = batch.ids.get(hint.kind);
    if (!ids) batch.ids.set(hint.kind, (ids = new Map()));
    ids.set(hint.id, hint.status ?? '');
  }
  timer ??= setTimeout(handOn, COLLECT_MS);
}

/** Calls `listener` with the hints of each pass. Returns the function that ends it. */
export function onHints(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Which hints somebody waits for: rows of these kinds, or one row of them. */
export interface Interest {
  kinds: readonly HintKind[];
  id?: string;
}

export function concerns(hints: HintBatch, { kinds, id }: Interest): boolean {
  return hints.reset || kinds.some((kind) => (id === undefined ? hints.ids.has(kind) : hints.ids.get(kind)?.has(id)));
}

/** Keeps the stream open until the returned function is called. After a gap the page asks for everything again. */
export function startHints(): () => void {
  const abort = new AbortController();
  void (async () => {
    let wait = 500;
    let first = true;
    while (!abort.signal.aborted) {
      try {
        await readStream('/api/stream', { signal: abort.signal }, collect, () => {
          live.value = true;
          wait = 500;
          if (!first) collect([{ id: null, name: 'reset', data: '' }]);
          first = false;
        });
      } catch (error) {
        if (error instanceof ApiError && error.status === 401) signedOut.value = true;
      }
      live.value = false;
      if (signedOut.value) return;
      await pause(wait, abort.signal);
      wait = Math.min(wait * 2, 15_000);
    }
  })();
  return () => abort.abort();
}
