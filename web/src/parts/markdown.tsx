/**
 * Markdown of models and tools. The lexer's tokens become elements one by one; no HTML is parsed, so HTML in the text stays text. Pictures
 * are shown only if the text contains them (`data:`); a picture elsewhere becomes a link, because loading it would tell a stranger.
 */
import { lexer, type Token, type Tokens } from 'marked';
import type { ComponentChildren, JSX } from 'preact';
import { memo } from 'preact/compat';
import { t } from '../i18n';
import { SafeLink } from './safe-link';

/** Longer text is shown plain: parsing it would block the page. */
const MAX_LENGTH = 100_000;
const MAX_DEPTH = 20;

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ' };

/** The lexer leaves character references as they are written. */
export function decodeEntities(text: string): string {
  return text.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|[a-z]{2,5});/gi, (whole, name: string) => {
    if (name[0] !== '#') return ENTITIES[name.toLowerCase()] ?? whole;
    const code = name[1]?.toLowerCase() === 'x' ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000) ? String.fromCodePoint(code) : whole;
  });
}

/** Pictures that may be shown: their bytes are in the text. SVG is a document with links of its own and is left out. */
export const isInlinePicture = (address: string) => /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]+$/.test(address);

function picture(token: Tokens.Image): ComponentChildren {
  if (isInlinePicture(token.href)) return <img class="picture" src={token.href} alt={decodeEntities(token.text)} />;
  return (
    <span class="no-picture">
      {t('picture_not_loaded')} <SafeLink href={token.href}>{decodeEntities(token.text) || token.href}</SafeLink>
    </span>
  );
}

function inline(tokens: Token[] | undefined, depth: number): ComponentChildren {
  return (tokens ?? []).map((token) => inlineToken(token, depth));
}

function inlineToken(token: Token, depth: number): ComponentChildren {
  if (depth > MAX_DEPTH) return token.raw;
  switch (token.type) {
    case 'strong':
      return <strong>{inline(token.tokens, depth + 1)}</strong>;
    case 'em':
      return <em>{inline(token.tokens, depth + 1)}</em>;
    case 'del':
      return <del>{inline(token.tokens, depth + 1)}</del>;
    case 'codespan':
      return <code>{token.text as string}</code>;
    case 'br':
      return <br />;
    case 'link':
      return <SafeLink href={token.href as string}>{inline(token.tokens, depth + 1)}</SafeLink>;
    case 'image':
      return picture(token as Tokens.Image);
    case 'text':
      return token.tokens ? inline(token.tokens, depth + 1) : decodeEntities(token.text as string);
    case 'escape':
      return decodeEntities(token.text as string);
    default:
      return token.raw;
  }
}

function heading(token: Tokens.Heading, depth: number): JSX.Element {
  const content = inline(token.tokens, depth + 1);
  // A heading of a model's text is below the headings of the page.
  if (token.depth <= 1) return <h3>{content}</h3>;
  if (token.depth === 2) return <h4>{content}</h4>;
  return <h5>{content}</h5>;
}

function list(token: Tokens.List, depth: number): JSX.Element {
  const items = token.items.map((item) => <li>{blocks(item.tokens, depth + 1)}</li>);
  return token.ordered ? <ol start={typeof token.start === 'number' ? token.start : 1}>{items}</ol> : <ul>{items}</ul>;
}

function table(token: Tokens.Table, depth: number): JSX.Element {
  return (
    <div class="table-scroll" tabIndex={0}>
      <table>
        <thead>
          <tr>{token.header.map((cell) => <th scope="col">{inline(cell.tokens, depth + 1)}</th>)}</tr>
        </thead>
        <tbody>
          {token.rows.map((row) => (
            <tr>{row.map((cell) => <td>{inline(cell.tokens, depth + 1)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function block(token: Token, depth: number): ComponentChildren {
  if (depth > MAX_DEPTH) return token.raw;
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading':
      return heading(token as Tokens.Heading, depth);
    case 'paragraph':
      return <p>{inline(token.tokens, depth + 1)}</p>;
    case 'code':
      return (
        <pre tabIndex={0}>
          <code>{token.text as string}</code>
        </pre>
      );
    case 'blockquote':
      return <blockquote>{blocks(token.tokens, depth + 1)}</blockquote>;
    case 'list':
      return list(token as Tokens.List, depth);
    case 'table':
      return table(token as Tokens.Table, depth);
    case 'hr':
      return <hr />;
    case 'html':
      return <p class="raw-text">{token.raw.trim()}</p>;
    default:
      return inlineToken(token, depth);
  }
}

function blocks(tokens: Token[] | undefined, depth = 0): ComponentChildren {
  return (tokens ?? []).map((token) => block(token, depth));
}

export const Markdown = memo(function Markdown({ text }: { text: string }) {
  if (text.length > MAX_LENGTH) return <pre class="raw-text" tabIndex={0}>{text}</pre>;
  let tokens: Token[];
  try {
    tokens = lexer(text, { gfm: true, breaks: true });
  } catch {
    return <p class="raw-text">{text}</p>;
  }
  return <div class="markdown">{blocks(tokens)}</div>;
});
