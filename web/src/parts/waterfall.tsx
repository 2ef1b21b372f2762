/** The model requests and tool calls of a turn on one time axis. */
import type { Span, Timeline } from '../api/types';
import { duration, money, short } from '../format';
import { t } from '../i18n';
import { to } from '../router';
import { Status, tone } from './basics';

interface Row {
  span: Span;
  from: number;
  length: number;
}

/** Where each span lies, in milliseconds after the start of the turn. */
export function layout(timeline: Pick<Timeline, 'turn' | 'spans'>): { rows: Row[]; total: number } {
  const begin = Date.parse(timeline.turn.created_at);
  const end = timeline.turn.finished_at ? Date.parse(timeline.turn.finished_at) : begin;
  const rows = timeline.spans
    .map((span) => ({ span, from: Math.max(0, Date.parse(span.started_at) - begin), length: Math.max(0, span.took_ms ?? 0) }))
    .sort((a, b) => a.from - b.from);
  const total = Math.max(1, end - begin, ...rows.map((row) => row.from + row.length));
  return { rows, total };
}

/** A takeover leaves no time of its own, but nothing ran while the lease of the lost server expired: the longest gaps without a span are marked. */
export function takeoverGaps(rows: Row[], count: number): { from: number; to: number }[] {
  const gaps: { from: number; to: number }[] = [];
  let end = 0;
  for (const row of rows) {
    if (row.from > end) gaps.push({ from: end, to: row.from });
    end = Math.max(end, row.from + row.length);
  }
  return gaps.sort((a, b) => b.to - b.from - (a.to - a.from)).slice(0, count);
}

export function Waterfall({ timeline, compact = false }: { timeline: Timeline; compact?: boolean }) {
  const { rows, total } = layout(timeline);
  const count = timeline.takeovers;
  const gaps = count > 0 ? takeoverGaps(rows, count) : [];
  const percent = (ms: number) => `${Math.min(100, (100 * ms) / total)}%`;
  return (
    <div class={`waterfall ${compact ? 'compact' : ''}`}>
      {count > 0 && <p class="takeover-note">{t('takeovers_note', { count })}</p>}
      <ol>
        {rows.map(({ span, from, length }) => (
          <li>
            <span class="wf-name">
              <span class={`kind ${span.kind}`}>{span.kind === 'model' ? t('model') : t('tool')}</span>{' '}
              {span.job_id ? <a href={to('calls', span.job_id)}>{span.name}</a> : <span>{span.name}</span>}
            </span>
            <span class="wf-track">
              {gaps.map((gap) => (
                <span class="wf-takeover" style={{ left: percent(gap.from), width: `max(2px, ${percent(gap.to - gap.from)})` }} title={t('takeover')} />
              ))}
              <span class={`wf-bar ${span.kind} ${tone(span.status)}`} style={{ left: percent(from), width: `max(3px, ${percent(length)})` }} />
            </span>
            <span class="wf-time">
              {!compact && tone(span.status) !== 'good' && <Status status={span.status} />} {duration(span.took_ms)}
            </span>
            {!compact && (
              <span class="wf-usage">
                {span.usage?.total_tokens ? t('tokens_n', { count: short(span.usage.total_tokens) }) : ''}
                {span.usage?.cost_usd ? ` · ${money(span.usage.cost_usd * 1e9)}` : ''}
              </span>
            )}
          </li>
        ))}
      </ol>
      <p class="wf-axis">
        <span>0</span>
        <span>{duration(total)}</span>
      </p>
    </div>
  );
}
