/** One turn: what the person wrote, which tools ran, and the answer. */
import { memo } from 'preact/compat';
import { ActionButton, Json, tone } from '../../parts/basics';
import { Icon } from '../../parts/icons';
import { isInlinePicture, Markdown } from '../../parts/markdown';
import { duration, money, number, shortId, time } from '../../format';
import { t, word } from '../../i18n';
import { to } from '../../router';
import { decide } from './conversation';
import type { ToolState, TurnState } from './turns';

interface Props {
  turn: TurnState;
  version: number;
  selected: boolean;
  openCall: (job: string) => void;
  select: (turn: string) => void;
}

const MAX_PICTURES = 8;

/** Pictures in a result: `data:` addresses, and the picture parts of MCP results. */
export function picturesOf(data: unknown, depth = 0, found: string[] = []): string[] {
  if (depth > 6 || found.length >= MAX_PICTURES || data === null || data === undefined) return found;
  if (typeof data === 'string') {
    if (data.startsWith('data:image/') && isInlinePicture(data)) found.push(data);
  } else if (Array.isArray(data)) {
    for (const item of data.slice(0, 200)) picturesOf(item, depth + 1, found);
  } else if (typeof data === 'object') {
    const part = data as Record<string, unknown>;
    if (typeof part.data === 'string' && typeof part.mimeType === 'string') {
      const address = `data:${part.mimeType};base64,${part.data}`;
      if (isInlinePicture(address)) found.push(address);
    } else for (const value of Object.values(part).slice(0, 200)) picturesOf(value, depth + 1, found);
  }
  return found;
}

function Chip({ call, openCall }: { call: ToolState; openCall: (job: string) => void }) {
  return (
    <a
      class={`chip ${tone(call.status)}`}
      data-testid="tool-chip"
      data-tool={call.tool}
      data-status={call.status}
      data-job={call.job}
      href={to('calls', call.job)}
      onClick={(event) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || window.innerWidth < 1100) return;
        event.preventDefault();
        openCall(call.job);
      }}
    >
      <Icon name="tools" />
      <span class="chip-tool">{call.tool}</span>
      <span class="chip-status">{word(call.status)}</span>
      {call.tookMs !== null && <span class="chip-time">{duration(call.tookMs)}</span>}
      {call.cacheHit && <span class="chip-time">{t('from_cache')}</span>}
    </a>
  );
}

function ApprovalCard({ call }: { call: ToolState }) {
  const approval = call.approval ?? '';
  return (
    <div class="approval-card">
      <p>
        <strong>{t('approval_needed')}</strong> {t('approval_needed_for', { tool: call.server ? `${call.tool} (${call.server})` : call.tool })}
      </p>
      {call.arguments !== undefined && <Json value={call.arguments} label={t('arguments')} />}
      <div class="row">
        <ActionButton kind="primary" icon="check" testid="approve" label={t('approve')} action={() => decide(approval, 'approve')} />
        <ActionButton kind="danger" icon="close" testid="deny" label={t('deny')} action={() => decide(approval, 'deny')} />
      </div>
    </div>
  );
}

function ToolItem({ call, turn, openCall }: { call: ToolState; turn: TurnState; openCall: (job: string) => void }) {
  const waits = call.status === 'awaiting_approval' && turn.status === 'awaiting_approval';
  const pictures = picturesOf(call.data);
  return (
    <div class="tool-item">
      <Chip call={call} openCall={openCall} />
      {waits && call.approval && <ApprovalCard call={call} />}
      {pictures.length > 0 && (
        <div class="pictures">
          {pictures.map((address) => (
            <img class="picture" src={address} alt={t('picture_of', { tool: call.tool })} />
          ))}
        </div>
      )}
    </div>
  );
}

export const TurnView = memo(function TurnView({ turn, selected, openCall, select }: Props) {
  const busy = turn.status === 'running';
  const quiet = busy && turn.items.every((item) => item.kind === 'text' && !item.content);
  return (
    <article class={`turn ${selected ? 'selected' : ''}`} aria-label={t('turn')}>
      {turn.user && (
        <div class="message user" data-testid="message" data-role="user">
          <p class="raw-text">{turn.user}</p>
        </div>
      )}
      <div class="message assistant" data-testid="message" data-role="assistant" data-status={turn.status} aria-busy={busy}>
        {turn.items.map((item) =>
          item.kind === 'text' ? item.content && <Markdown key={`t${item.step}`} text={item.content} /> : <ToolItem key={item.call.job} call={item.call} turn={turn} openCall={openCall} />,
        )}
        {quiet && (
          <p class="thinking" role="status">
            {t('thinking')}
          </p>
        )}
        {turn.error && (
          <div class="turn-error" role="alert">
            <strong>{turn.status === 'canceled' ? t('turn_canceled') : t('turn_failed')}</strong>
            {turn.status !== 'canceled' && <span> {turn.error.message}</span>} <code>{turn.error.code}</code>
          </div>
        )}
        {turn.id !== 'pending' && (
          <p class="turn-foot">
            <span>{time(turn.createdAt)}</span>
            {turn.usage && <span>{t('tokens_n', { count: number(turn.usage.total_tokens) })}</span>}
            {turn.usage?.cost_usd ? <span>{money(turn.usage.cost_usd * 1e9)}</span> : null}
            <a
              href={to('turns', turn.id)}
              onClick={(event) => {
                if (event.metaKey || event.ctrlKey || event.shiftKey || window.innerWidth < 1100) return;
                event.preventDefault();
                select(turn.id);
              }}
            >
              {t('what_happened')}
              <span class="visually-hidden"> {shortId(turn.id)}</span>
            </a>
          </p>
        )}
      </div>
    </article>
  );
}, (before, after) => before.turn === after.turn && before.version === after.version && before.selected === after.selected);
