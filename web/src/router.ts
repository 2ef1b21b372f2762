/** Paths of the page. The address is the state: a view can be linked, reloaded and left with the browser's own buttons. */
import { computed, signal } from '@preact/signals';

export const BASE = '/console';

const location_ = signal(read());

function read() {
  return { path: window.location.pathname, query: window.location.search };
}

window.addEventListener('popstate', () => (location_.value = read()));

/** The parts of the path after `/console/`. */
export const segments = computed(() => location_.value.path.slice(BASE.length).split('/').filter(Boolean).map(decode));

/** The query of the address. */
export const query = computed(() => new URLSearchParams(location_.value.query));

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a view: `to('calls', id)`. */
export const to = (...parts: string[]) => [BASE, ...parts.map(encodeURIComponent)].join('/');

/** Opens an address of this page. */
export function open(address: string, replace = false) {
  window.history[replace ? 'replaceState' : 'pushState'](null, '', address);
  location_.value = read();
}

/** Changes the query and nothing else; leaves no entry in the history. */
export function setQuery(values: Record<string, string>) {
  const next = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  const text = next.toString();
  open(window.location.pathname + (text ? `?${text}` : ''), true);
}

/** Links inside the page change the view without a new page. Clicks for a new tab stay the browser's. */
export function followLinks(root: HTMLElement) {
  root.addEventListener('click', (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element).closest('a');
    if (!link || link.target || link.origin !== window.location.origin || !link.pathname.startsWith(BASE + '/')) return;
    event.preventDefault();
    open(link.pathname + link.search);
  });
}
