/** Links in text of models and tools: only http, https and mailto, with the host in sight, because the text of a link can lie. */
import type { ComponentChildren } from 'preact';

/** The address of a link and what it leads to, or null if the scheme is not allowed. */
export function safeAddress(text: string): { href: string; host: string } | null {
  let url: URL;
  try {
    url = new URL(text.trim());
  } catch {
    return null;
  }
  if (url.protocol === 'mailto:') return { href: url.href, host: decodeURIComponentSafe(url.pathname) };
  if ((url.protocol !== 'http:' && url.protocol !== 'https:') || !url.host) return null;
  // A name before the host ("https://bank.example@evil.example") is only there to mislead.
  url.username = '';
  url.password = '';
  return { href: url.href, host: url.host };
}

function decodeURIComponentSafe(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function SafeLink({ href, children }: { href: string; children: ComponentChildren }) {
  const safe = safeAddress(href);
  if (!safe) return <span>{children}</span>;
  return (
    <a class="outside-link" href={safe.href} target="_blank" rel="noopener noreferrer nofollow" referrerpolicy="no-referrer">
      {children}
      <span class="host">{safe.host}</span>
    </a>
  );
}
