/** Choices of the person that this browser keeps: theme, and the person whom an operator acts for. */
import { effect, signal } from '@preact/signals';

export type Theme = 'auto' | 'light' | 'dark';

/** Storage can be switched off in a browser; the page works without. */
export function stored(name: string): string | null {
  try {
    return window.localStorage.getItem(`werkruf.${name}`);
  } catch {
    return null;
  }
}

export function store(name: string, value: string) {
  try {
    window.localStorage.setItem(`werkruf.${name}`, value);
  } catch {
    // Nothing to do: the choice lasts as long as the page.
  }
}

const known = stored('theme');
export const theme = signal<Theme>(known === 'light' || known === 'dark' ? known : 'auto');

const prefersDark = window.matchMedia('(prefers-color-scheme: dark)');
export const dark = signal(false);

function apply() {
  dark.value = theme.value === 'dark' || (theme.value === 'auto' && prefersDark.matches);
  document.documentElement.dataset.theme = dark.value ? 'dark' : 'light';
}

prefersDark.addEventListener('change', apply);
effect(apply);

export function setTheme(next: Theme) {
  theme.value = next;
  store('theme', next);
}
