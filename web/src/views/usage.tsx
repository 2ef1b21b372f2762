/** Usage: what the assistant cost, per day, model, tool and person; budgets and alerts. */
import { useMemo } from 'preact/hooks';
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { UsageRow } from '../api/types';
import { moment, money, number, short } from '../format';
import { t, word } from '../i18n';
import { Empty, Facts, Field, Loaded, Page, Section, Status } from '../parts/basics';
import { Bars, DayChart } from '../parts/chart';
import { useResource } from '../resource';
import { isAdmin, personName } from '../session';
import { Budgets } from './budgets';

type Metric = 'cost' | 'tokens' | 'calls';
const DAY = 86_400;
const RANGES = [7, 30, 90];

const amount = (row: UsageRow, metric: Metric) => (metric === 'cost' ? row.cost_nano_usd : metric === 'tokens' ? row.tokens_total : row.calls);
const formatOf = (metric: Metric) => (metric === 'cost' ? (value: number) => money(value) : (value: number) => short(value));

function range(days: number) {
  const to = Math.floor(Date.now() / 1000 / DAY) * DAY + DAY;
  const iso = (seconds: number) => new Date(seconds * 1000).toISOString();
  return { from: to - days * DAY, to, query: { from: iso(to - days * DAY), to: iso(to) } };
}

async function load(days: number, signal: AbortSignal) {
  const { query } = range(days);
  const report = (group_by: 'day' | 'model' | 'tool' | 'user') => api.get('/api/usage', { query: { ...query, group_by }, signal });
  const [day, model, tool, user] = await Promise.all([report('day'), report('model'), report('tool'), report('user')]);
  return { day, model, tool, user };
}

/** One value per day, also for days without usage. */
export function perDay(rows: { key?: string | null; value: number }[], from: number, to: number) {
  const byDay = new Map(rows.map((row) => [row.key?.slice(0, 10), row.value]));
  const days: number[] = [];
  const values: number[] = [];
  for (let day = from; day < to; day += DAY) {
    days.push(day);
    values.push(byDay.get(new Date(day * 1000).toISOString().slice(0, 10)) ?? 0);
  }
  return { days, values };
}

function ranked(rows: UsageRow[], metric: Metric, nameOf: (key: string) => string) {
  return rows
    .map((row) => ({
      name: row.key ? nameOf(row.key) : t('no_name'),
      value: amount(row, metric),
      note: t('bar_note', { calls: number(row.calls), tokens: short(row.tokens_total) }),
    }))
    .sort((a, b) => b.value - a.value)
    .slice(0, 12);
}

function Charts({ data, metric, days }: { data: Awaited<ReturnType<typeof load>>; metric: Metric; days: number }) {
  const format = formatOf(metric);
  const series = useMemo(() => {
    const { from, to } = range(days);
    return perDay(data.day.rows.map((row) => ({ key: row.key, value: amount(row, metric) })), from, to);
  }, [data, metric, days]);
  const total = data.day.total;
  return (
    <>
      <Facts
        large
        rows={[
          [t('cost'), money(total.cost_nano_usd)],
          [t('model_requests'), number(total.calls)],
          [t('tokens'), number(total.tokens_total)],
          [t('tokens_cached'), number(total.tokens_cached)],
          [t('unpriced'), number(total.unpriced_calls)],
          [t('estimated'), number(total.estimated_calls)],
        ]}
      />
      <Section title={t('per_day')}>
        <DayChart days={series.days} values={series.values} format={format} label={t('chart_label', { what: t(metric) })} />
        {total.calls === 0 && <p class="muted">{t('usage_empty')}</p>}
      </Section>
      <div class="columns three">
        <Section title={t('per_model')}>
          <Bars rows={ranked(data.model.rows, metric, (key) => key)} format={format} empty={t('nothing_yet')} />
        </Section>
        <Section title={t('per_tool')}>
          <Bars rows={ranked(data.tool.rows, metric, (key) => key)} format={format} empty={t('nothing_yet')} />
        </Section>
        <Section title={t('per_person')}>
          <Bars rows={ranked(data.user.rows, metric, personName)} format={format} empty={t('nothing_yet')} />
        </Section>
      </div>
    </>
  );
}

function Alerts() {
  const list = useResource((signal) => api.get('/api/alerts', { query: { order: 'desc', limit: 50 }, signal }), [], { kinds: ['alert'] });
  return (
    <Section title={t('alerts')}>
      <Loaded of={list}>
        {({ alerts }) =>
          alerts.length ? (
            <ul class="item-list plain">
              {alerts.map((alert) => (
                <li key={alert.id}>
                  <Status status={alert.status} />
                  <span class="item-title">{word(alert.type)}</span>
                  <span class="item-text">{alert.message}</span>
                  <span class="muted">{moment(alert.opened_at)}</span>
                </li>
              ))}
            </ul>
          ) : (
            <Empty icon="check" title={t('alerts_empty')} />
          )
        }
      </Loaded>
    </Section>
  );
}

export function UsageView() {
  const days = useSignal(30);
  const chosen = useSignal<Metric | null>(null);
  const usage = useResource((signal) => load(days.value, signal), [days.value], { kinds: ['turn'] });
  const total = usage.data.value?.day.total;
  // Models without a price have tokens only.
  const metric = chosen.value ?? (total && !total.cost_nano_usd && total.tokens_total ? 'tokens' : 'cost');
  return (
    <Page title={t('nav_usage')} intro={t('usage_intro')}>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Field label={t('period')}>
          <select value={String(days.value)} onChange={(event) => (days.value = Number(event.currentTarget.value))}>
            {RANGES.map((range) => (
              <option value={String(range)}>{t('last_days', { count: range })}</option>
            ))}
          </select>
        </Field>
        <Field label={t('show')}>
          <select data-testid="usage-metric" value={metric} onChange={(event) => (chosen.value = event.currentTarget.value as Metric)}>
            {(['cost', 'tokens', 'calls'] as const).map((one) => (
              <option value={one}>{t(one)}</option>
            ))}
          </select>
        </Field>
      </form>
      <Loaded of={usage}>{(data) => <Charts data={data} metric={metric} days={days.value} />}</Loaded>
      {isAdmin.value && <Budgets />}
      {isAdmin.value && <Alerts />}
    </Page>
  );
}
