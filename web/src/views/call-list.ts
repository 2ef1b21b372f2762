/** The rows of the list of calls: loaded page by page, newest first, and loaded again after hints. */
import { signal } from '@preact/signals';
import { api, ApiError } from '../api/client';
import { concerns, type HintBatch } from '../api/hints';
import type { Call } from '../api/types';
import { asApiError, loadEnded, loadStarted } from '../resource';

/** What a row shows. The whole calls are not kept: ten thousand of them with their results would fill the memory. */
export interface CallRow {
  id: string;
  tool: string;
  status: string;
  createdAt: string;
  tookMs: number | null;
  attempt: number;
  code: string | null;
  tainted: boolean;
  cacheHit: boolean;
  summary: string;
}

export const STATUSES = ['queued', 'running', 'succeeded', 'failed', 'timeout', 'canceled'] as const;

export interface CallFilter {
  tool: string;
  status: (typeof STATUSES)[number] | '';
  conversation_id: string;
}

const PAGE = 200;
const MAX_ROWS = 50_000;
const SUMMARY = 120;

function rowOf(call: Call): CallRow {
  const request = call.request ?? null;
  return {
    id: call.id,
    tool: call.tool_name,
    status: call.status,
    createdAt: call.created_at,
    tookMs: call.finished_at ? call.took_ms : null,
    attempt: call.attempt,
    code: call.error_code ?? null,
    tainted: (call.taint?.length ?? 0) > 0,
    cacheHit: call.cache_hit,
    summary: request ? JSON.stringify(request).slice(0, SUMMARY) : (call.raw_arguments ?? '').slice(0, SUMMARY),
  };
}

const sameRow = (a: CallRow, b: CallRow) => a.status === b.status && a.tookMs === b.tookMs && a.attempt === b.attempt && a.code === b.code;

/** Puts the newest page over the rows known so far. Ids grow with time, so both are in order. Rows that did not change stay the same objects. */
export function merge(known: readonly CallRow[], page: CallRow[], wholeRange: boolean): CallRow[] | null {
  const last = page.at(-1);
  const older = wholeRange || !last ? [] : known.filter((row) => row.id < last.id);
  const byId = new Map(known.map((row) => [row.id, row]));
  let changed = known.length !== page.length + older.length;
  const fresh = page.map((row) => {
    const before = byId.get(row.id);
    if (before && sameRow(before, row)) return before;
    changed = true;
    return row;
  });
  return changed ? [...fresh, ...older] : null;
}

export class CallList {
  readonly rows = signal<readonly CallRow[]>([]);
  readonly error = signal<ApiError | null>(null);
  readonly loaded = signal(false);
  readonly more = signal(true);
  private readonly abort = new AbortController();
  private cursor: string | undefined;
  private busy = false;
  private stale = false;
  private wanted = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private notBefore = 0;

  constructor(private readonly filter: CallFilter) {
    void this.loadMore();
  }

  private page(after?: string, limit = PAGE) {
    return api.get('/api/tool-calls', { query: { ...this.filter, status: this.filter.status || undefined, order: 'desc', limit, after }, signal: this.abort.signal });
  }

  /** Loads the next older page. */
  async loadMore() {
    if (!this.more.value || this.rows.value.length >= MAX_ROWS) return;
    // Somebody scrolls while the newest page is loaded again: the older page comes next.
    this.wanted = this.busy;
    if (this.busy) return;
    await this.work(async () => {
      const page = await this.page(this.cursor);
      this.cursor = page.next_after ?? undefined;
      this.more.value = this.cursor !== undefined;
      this.rows.value = [...this.rows.value, ...page.tool_calls.map(rowOf)];
    });
  }

  /** Loads the newest page again. Rows further down change rarely; the open ones among them are few and end with the next full load. */
  private async refresh() {
    await this.work(async () => {
      const page = await this.page();
      const rows = merge(this.rows.value, page.tool_calls.map(rowOf), page.next_after === null || page.next_after === undefined);
      if (rows) this.rows.value = rows;
    });
  }

  private async work(load: () => Promise<void>) {
    this.busy = true;
    const first = !this.loaded.value;
    const began = performance.now();
    if (first) loadStarted();
    try {
      await load();
      this.error.value = null;
      this.loaded.value = true;
    } catch (error) {
      if (!this.abort.signal.aborted) this.error.value = asApiError(error);
    } finally {
      this.busy = false;
      this.notBefore = performance.now() + Math.max(700, 3 * (performance.now() - began));
      if (first) loadEnded();
      if (this.wanted) void this.loadMore();
      else if (this.stale) this.schedule();
    }
  }

  private schedule() {
    this.stale = this.busy;
    if (this.busy || this.timer || this.abort.signal.aborted) return;
    this.timer = setTimeout(
      () => {
        this.timer = undefined;
        if (this.busy) this.stale = true;
        else void this.refresh();
      },
      Math.max(0, this.notBefore - performance.now()),
    );
  }

  hint(hints: HintBatch) {
    if (concerns(hints, { kinds: ['call'] })) this.schedule();
  }

  close() {
    clearTimeout(this.timer);
    this.abort.abort();
  }
}
