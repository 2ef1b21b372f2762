/** Data of the server that a view shows: loaded when the view opens, and again when a hint says so. */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { type ReadonlySignal, useSignal } from '@preact/signals';
import { concerns, type Interest, onHints } from './api/hints';
import { actingFor, ApiError } from './api/client';

export interface Resource<T> {
  data: ReadonlySignal<T | undefined>;
  error: ReadonlySignal<ApiError | undefined>;
  reload: () => Promise<void>;
}

let loading = 0;
let settled = false;

/** Counts the loads under way. `<html data-ready>` is set once the first of them are done. */
export function loadStarted() {
  loading += 1;
}

export function loadEnded() {
  loading -= 1;
  if (settled || loading > 0) return;
  // The next task: by then the page shows what was loaded, and views that open with it have started their own loads.
  setTimeout(() => {
    if (loading > 0 || settled) return;
    settled = true;
    document.documentElement.dataset.ready = '1';
  });
}

/** What a failed request is shown as. */
export function asApiError(error: unknown): ApiError {
  return error instanceof ApiError ? error : new ApiError(0, 'page_error', error instanceof Error ? error.message : String(error));
}

/**
 * Loads data, and again when `deps` or the person acted for change, and after hints of interest. At most one load runs; hints that arrive
 * meanwhile cause one more. The pause between loads grows with the time that a load takes.
 */
export function useResource<T>(load: (signal: AbortSignal) => Promise<T>, deps: unknown[], interest?: Interest): Resource<T> {
  const data = useSignal<T | undefined>(undefined);
  const error = useSignal<ApiError | undefined>(undefined);
  const latest = useRef(load);
  latest.current = load;
  const run = useRef<() => Promise<void>>(async () => {});

  // A layout effect runs with the first drawing, so the load is counted before the page could seem to be done.
  useLayoutEffect(() => {
    const abort = new AbortController();
    let running: Promise<void> | undefined;
    let changed = false;
    let notBefore = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    data.value = undefined;
    const once = async () => {
      loadStarted();
      const began = performance.now();
      try {
        const value = await latest.current(abort.signal);
        if (abort.signal.aborted) return;
        data.value = value;
        error.value = undefined;
      } catch (caught) {
        if (!abort.signal.aborted) error.value = asApiError(caught);
      } finally {
        running = undefined;
        notBefore = performance.now() + Math.max(600, 3 * (performance.now() - began));
        loadEnded();
        if (changed) schedule();
      }
    };
    const start = () => (running ??= once());
    const schedule = () => {
      changed = running !== undefined;
      if (running || timer || abort.signal.aborted) return;
      timer = setTimeout(
        () => {
          timer = undefined;
          void start();
        },
        Math.max(0, notBefore - performance.now()),
      );
    };
    run.current = async () => {
      await running;
      if (!abort.signal.aborted) await start();
    };
    void start();
    const end = onHints((hints) => {
      if (interest && concerns(hints, interest)) schedule();
    });
    return () => {
      end();
      clearTimeout(timer);
      abort.abort();
    };
  }, [...deps, actingFor.value]);

  return { data, error, reload: () => run.current() };
}
