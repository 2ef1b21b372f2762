/** A turn as a waterfall of its model requests and tool calls. */
import { api } from '../api/client';
import type { Timeline } from '../api/types';
import { dateTime, duration, money, number, shortId } from '../format';
import { t } from '../i18n';
import { ActionButton, Empty, Facts, Loaded, Page, Section, Status, tone } from '../parts/basics';
import { Waterfall } from '../parts/waterfall';
import { useResource } from '../resource';
import { segments, to } from '../router';

/** The sums of a turn's spans. */
function totals(timeline: Timeline) {
  let tokens = 0;
  let cost = 0;
  let priced = false;
  for (const span of timeline.spans) {
    tokens += span.usage?.total_tokens ?? 0;
    cost += (span.usage?.cost_usd ?? 0) * 1e9;
    priced ||= typeof span.usage?.cost_usd === 'number';
  }
  return { tokens, cost: priced ? cost : null };
}

export function TurnDetail({ id, compact = false }: { id: string; compact?: boolean }) {
  const timeline = useResource((signal) => api.get('/api/turns/{id}/timeline', { path: { id }, signal }).then((found) => found as unknown as Timeline), [id], { kinds: ['call', 'turn'] });
  return (
    <Loaded of={timeline}>
      {(data) => {
        const { turn, spans } = data;
        const sums = totals(data);
        const took = turn.finished_at ? Date.parse(turn.finished_at) - Date.parse(turn.created_at) : null;
        return (
          <>
            {compact && (
              <div class="inspector-head">
                <h2>{t('what_happened')}</h2>
                <a href={to('turns', id)}>{t('open_timeline')}</a>
              </div>
            )}
            <Facts
              rows={[
                [t('status'), <Status status={turn.status} />],
                [t('took'), duration(took)],
                [t('model_requests'), number(spans.filter((span) => span.kind === 'model').length)],
                [t('tool_calls'), number(spans.filter((span) => span.kind === 'tool').length)],
                [t('tokens'), number(sums.tokens)],
                [t('price'), money(sums.cost)],
                ...(compact ? [] : ([[t('started'), dateTime(turn.created_at)], [t('takeovers'), number(data.takeovers)]] as [string, string][])),
              ]}
            />
            {spans.length ? <Waterfall timeline={data} compact={compact} /> : <Empty icon="calls" title={t('no_spans')} />}
            {!compact && tone(turn.status) === 'busy' && (
              <ActionButton kind="danger" label={t('cancel_turn')} action={() => api.post('/api/turns/{id}/cancel', { path: { id } })} />
            )}
            {!compact && turn.conversation_id && (
              <p>
                <a href={to('chat', turn.conversation_id)}>{t('open_conversation')}</a>
              </p>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

export function TurnView() {
  const id = segments.value[1];
  if (!id) {
    return (
      <Page title={t('turn')}>
        <Empty icon="calls" title={t('no_turn')}>
          <a href={to('calls')}>{t('nav_calls')}</a>
        </Empty>
      </Page>
    );
  }
  return (
    <Page title={t('turn_title', { id: shortId(id) })} intro={t('turn_intro')}>
      <Section title={t('timeline')}>
        <TurnDetail key={id} id={id} />
      </Section>
    </Page>
  );
}
