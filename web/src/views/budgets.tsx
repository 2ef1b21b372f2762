/** Budgets: how much is used of each, and a form for a new one. */
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { Budget } from '../api/types';
import { moment, money, number } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Empty, Field, Loaded, Section } from '../parts/basics';
import { useResource } from '../resource';
import { personName } from '../session';

const amount = (value: number, unit: string) => (unit === 'nano_usd' ? money(value) : number(value));

function subject(budget: Budget): string {
  if (!budget.subject) return budget.scope === 'tenant' ? '' : t('each_one');
  return budget.scope === 'user' ? personName(budget.subject) : budget.subject;
}

function Row({ budget, reload }: { budget: Budget; reload: () => Promise<void> }) {
  const part = budget.limit ? (budget.used + budget.reserved) / budget.limit : 1;
  const remove = async () => {
    await api.delete('/api/budgets/{id}', { path: { id: budget.id } });
    await reload();
  };
  return (
    <li data-testid="budget">
      <span class="item-title">
        {word(budget.scope)} {subject(budget)}
      </span>
      <span class="muted">
        {word(budget.period)} · {word(budget.unit)}
      </span>
      <meter class="budget-meter" min={0} max={1} low={0.5} high={0.8} optimum={0} value={Math.min(1, part)} aria-label={t('used')} />
      <span>
        {amount(budget.used, budget.unit)} / {amount(budget.limit, budget.unit)}
        {budget.reserved > 0 && <span class="muted"> (+{amount(budget.reserved, budget.unit)} {t('reserved')})</span>}
      </span>
      <span class="muted">{t('resets', { at: moment(budget.resets_at) })}</span>
      {!budget.configured && <ActionButton label={t('delete')} kind="quiet" action={remove} />}
    </li>
  );
}

function NewBudget({ done }: { done: () => Promise<void> }) {
  const form = useSignal({ scope: 'tenant', subject: '', period: 'day', unit: 'tokens', limit: '' });
  const set = (change: Partial<typeof form.value>) => (form.value = { ...form.value, ...change });
  const add = async () => {
    const { scope, subject, period, unit, limit } = form.value;
    const number = Math.round(Number(limit) * (unit === 'nano_usd' ? 1e9 : 1));
    if (!limit || !Number.isSafeInteger(number) || number < 0) throw new Error(t('field_wrong', { field: t('limit') }));
    await api.post('/api/budgets', { body: { scope, subject: subject || null, period, unit, limit: number } });
    set({ subject: '', limit: '' });
    await done();
  };
  const select = (name: 'scope' | 'period' | 'unit', label: string, choices: string[]) => (
    <Field label={label}>
      <select value={form.value[name]} onChange={(event) => set({ [name]: event.currentTarget.value })}>
        {choices.map((choice) => (
          <option value={choice}>{word(choice)}</option>
        ))}
      </select>
    </Field>
  );
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()} aria-label={t('budget_new')}>
      {select('scope', t('scope'), ['tenant', 'user', 'key', 'assistant'])}
      {form.value.scope !== 'tenant' && (
        <Field label={t('subject')}>
          <input value={form.value.subject} placeholder={t('each_one')} onInput={(event) => set({ subject: event.currentTarget.value })} />
        </Field>
      )}
      {select('period', t('period'), ['day', 'month'])}
      {select('unit', t('unit'), ['tokens', 'nano_usd', 'model_calls'])}
      <Field label={form.value.unit === 'nano_usd' ? t('limit_dollars') : t('limit')}>
        <input type="number" min={0} step="any" value={form.value.limit} onInput={(event) => set({ limit: event.currentTarget.value })} />
      </Field>
      <ActionButton kind="primary" icon="plus" label={t('budget_add')} testid="budget-add" action={add} />
    </form>
  );
}

export function Budgets() {
  const list = useResource((signal) => api.get('/api/budgets', { signal }), [], { kinds: ['turn', 'alert'] });
  return (
    <Section title={t('budgets')}>
      <Loaded of={list}>
        {({ budgets }) =>
          budgets.length ? (
            <ul class="item-list plain">
              {budgets.map((budget) => (
                <Row key={budget.id} budget={budget} reload={list.reload} />
              ))}
            </ul>
          ) : (
            <Empty icon="usage" title={t('budgets_empty_title')}>
              {t('budgets_empty')}
            </Empty>
          )
        }
      </Loaded>
      <NewBudget done={list.reload} />
    </Section>
  );
}
