/** Texts of the page in three languages. English defines the keys; the others must have all of them, which the type checker enforces. */
import { computed, effect, signal } from '@preact/signals';
import { store, stored } from '../settings';
import { de } from './de';
import { en, type Texts } from './en';
import { es } from './es';

export const LANGUAGES = { de: 'Deutsch', en: 'English', es: 'Español' } as const;
export type Language = keyof typeof LANGUAGES;

const TEXTS: Record<Language, Texts> = { de, en, es };

const isLanguage = (text: string | null | undefined): text is Language => text !== null && text !== undefined && text in TEXTS;

function preferred(): Language {
  const kept = stored('language');
  if (isLanguage(kept)) return kept;
  for (const tag of navigator.languages) {
    const language = tag.slice(0, 2).toLowerCase();
    if (isLanguage(language)) return language;
  }
  return 'en';
}

export const language = signal<Language>(preferred());

/** The tag that formats numbers and times: the browser's own if it is of the page's language, so that dates look as the person is used to. */
export const locale = computed(() => navigator.languages.find((tag) => tag.toLowerCase().startsWith(language.value)) ?? language.value);

export function setLanguage(next: Language) {
  language.value = next;
  store('language', next);
}

effect(() => {
  document.documentElement.lang = language.value;
});

/** The text of a key; `{name}` is replaced by a value. */
export function t(key: keyof Texts, values: Record<string, string | number> = {}): string {
  return TEXTS[language.value][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The text of a status or another word of the API; an unknown word is shown as it is. */
export function word(text: string): string {
  const key = `word_${text}`;
  return key in TEXTS[language.value] ? t(key as keyof Texts) : text.replaceAll('_', ' ');
}
