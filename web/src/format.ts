/** Numbers, times and money as a person reads them, in the language of the page. */
import { locale } from './i18n';

const NANO = 1e9;

export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${number(ms / 1000, ms < 10_000 ? 2 : 1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export function number(value: number, digits = 0): string {
  return new Intl.NumberFormat(locale.value, { maximumFractionDigits: digits }).format(value);
}

/** 12,345 as 12.3K. */
export function short(value: number): string {
  return new Intl.NumberFormat(locale.value, { notation: 'compact', maximumFractionDigits: 1 }).format(value);
}

/** Nano-dollars as dollars, with more digits for small sums. */
export function money(nano: number | null | undefined): string {
  if (nano === null || nano === undefined) return '–';
  const dollars = nano / NANO;
  const digits = dollars !== 0 && Math.abs(dollars) < 0.01 ? 6 : Math.abs(dollars) < 1 ? 4 : 2;
  return new Intl.NumberFormat(locale.value, { style: 'currency', currency: 'USD', currencyDisplay: 'narrowSymbol', minimumFractionDigits: 2, maximumFractionDigits: digits }).format(dollars);
}

export function time(iso: string | null | undefined): string {
  if (!iso) return '–';
  return new Intl.DateTimeFormat(locale.value, { hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(new Date(iso));
}

export function dateTime(iso: string | null | undefined): string {
  if (!iso) return '–';
  return new Intl.DateTimeFormat(locale.value, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(iso));
}

/** The time today, otherwise the date with the time. */
export function moment(iso: string | null | undefined): string {
  if (!iso) return '–';
  const at = new Date(iso);
  if (at.toDateString() === new Date().toDateString()) return time(iso);
  return new Intl.DateTimeFormat(locale.value, { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit' }).format(at);
}

export function day(date: Date): string {
  return new Intl.DateTimeFormat(locale.value, { day: 'numeric', month: 'short', timeZone: 'UTC' }).format(date);
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 * 1024) return `${number(count / 1024, 1)} KiB`;
  return `${number(count / 1024 / 1024, 1)} MiB`;
}

/** The end of an id: UUIDv7 values of one time share their beginning. */
export const shortId = (id: string) => id.slice(-8);
