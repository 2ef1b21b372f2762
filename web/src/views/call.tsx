/** One call explained: what was asked, what was sent, who allowed it, how often it was tried, and how it ended. */
import type { ComponentChildren } from 'preact';
import { useSignal } from '@preact/signals';
import { api } from '../api/client';
import type { Call, Explanation, Usage } from '../api/types';
import { dateTime, duration, money, number, shortId, time } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Facts, Json, Loaded, Status, tone } from '../parts/basics';
import { Markdown } from '../parts/markdown';
import { useResource } from '../resource';
import { open, to } from '../router';
import { personName } from '../session';

interface Detail {
  call: Call;
  explanation: Explanation;
}

async function load(id: string, signal: AbortSignal): Promise<Detail> {
  const [call, explanation] = await Promise.all([
    api.get('/api/tool-calls/{id}', { path: { id }, signal }),
    api.get('/api/tool-calls/{id}/explain', { path: { id }, signal }),
  ]);
  return { call, explanation };
}

const RETRYABLE = ['failed', 'timeout', 'canceled'];

function Actions({ call, reload }: { call: Call; reload: () => Promise<void> }) {
  const unknown = call.error_code === 'outcome_unknown';
  const retry = async () => {
    const { job_id } = await api.post('/api/tool-calls/{id}/retry', { path: { id: call.id }, body: unknown ? { force: true } : {} });
    open(to('calls', job_id));
  };
  const cancel = async () => {
    await api.post('/api/tool-calls/{id}/cancel', { path: { id: call.id } });
    await reload();
  };
  return (
    <div class="row">
      {RETRYABLE.includes(call.status) && call.runner === 'server' && (
        <ActionButton label={unknown ? t('retry_unknown') : t('retry')} kind={unknown ? 'danger' : 'primary'} testid="call-retry" action={retry} />
      )}
      {tone(call.status) === 'busy' && <ActionButton label={t('cancel')} kind="danger" testid="call-cancel" action={cancel} />}
    </div>
  );
}

function Part({ title, children, open: opened = true }: { title: string; children: ComponentChildren; open?: boolean }) {
  return (
    <details class="part" open={opened}>
      <summary>{title}</summary>
      <div class="part-body">{children}</div>
    </details>
  );
}

/** The raw arguments as the model wrote them; indented if they are JSON, which changes nothing but spaces. */
function Arguments({ call, explanation }: { call: Call; explanation: Explanation }) {
  const repairs = explanation.repairs ?? [];
  const same = sameJson(explanation.raw_arguments, explanation.arguments);
  return (
    <>
      <h4>{t('arguments_raw')}</h4>
      <Json value={explanation.raw_arguments ?? t('none')} testid="call-arguments-raw" label={t('arguments_raw')} />
      <h4>{same ? t('arguments_same') : t('arguments_run')}</h4>
      {!same && <Json value={explanation.arguments ?? null} testid="call-arguments" label={t('arguments_run')} />}
      {repairs.length > 0 && (
        <>
          <h4>{t('repairs')}</h4>
          <ul class="repairs">
            {repairs.map((repair) => {
              const { path, from, to: into, rule } = repair as { path?: string; from?: unknown; to?: unknown; rule?: string };
              return (
                <li>
                  <code>{path || '/'}</code>: <code>{JSON.stringify(from)}</code> → <code>{JSON.stringify(into)}</code> {rule && <span class="muted">{word(rule)}</span>}
                </li>
              );
            })}
          </ul>
        </>
      )}
      {call.idempotency_key && (
        <p class="muted">
          {t('idempotency_key')}: <code>{call.idempotency_key}</code>
        </p>
      )}
    </>
  );
}

function sameJson(raw: string | null | undefined, value: unknown): boolean {
  if (!raw) return false;
  try {
    return JSON.stringify(JSON.parse(raw)) === JSON.stringify(value);
  } catch {
    return false;
  }
}

function Permission({ explanation }: { explanation: Explanation }) {
  const permission = explanation.permission as Record<string, unknown> | null | undefined;
  const approval = explanation.approval;
  if (!permission && !approval) return <p class="muted">{t('permission_none')}</p>;
  const plain = (value: unknown) => (value === null || value === undefined ? '–' : typeof value === 'object' ? JSON.stringify(value) : String(value));
  return (
    <>
      {permission && <Facts rows={Object.entries(permission).map(([name, value]) => [word(name), plain(value)])} />}
      {approval && (
        <Facts
          rows={[
            [t('approval'), <Status status={approval.status} />],
            [t('asked_by'), personName(approval.asked_by)],
            [t('decided_by'), approval.decided_by ? personName(approval.decided_by) : '–'],
            [t('decided_at'), dateTime(approval.decided_at)],
          ]}
        />
      )}
    </>
  );
}

function Attempts({ explanation }: { explanation: Explanation }) {
  if (!explanation.attempts.length) return <p class="muted">{t('never_sent')}</p>;
  return (
    <ol class="attempts">
      {explanation.attempts.map((attempt) => {
        const error = attempt.error as { code?: string; message?: string } | null | undefined;
        const took = attempt.started_at && attempt.finished_at ? Date.parse(attempt.finished_at) - Date.parse(attempt.started_at) : null;
        return (
          <li>
            <span class="attempt-number">{attempt.attempt}</span> <Status status={attempt.status} /> <span>{time(attempt.started_at)}</span> <span class="muted">{duration(took)}</span>
            {error && (
              <p class="muted">
                <code>{error.code}</code> {error.message}
              </p>
            )}
          </li>
        );
      })}
    </ol>
  );
}

function OutcomePart({ explanation }: { explanation: Explanation }) {
  const { outcome } = explanation;
  const error = outcome.error as { type?: string; code?: string; message?: string } | null | undefined;
  const message = (outcome.data as { message?: unknown } | null | undefined)?.message;
  return (
    <div data-testid="call-outcome" data-status={outcome.status}>
      <p>
        <Status status={outcome.status} /> {duration(outcome.took_ms)}
        {outcome.cache_hit && <span class="muted"> · {t('from_cache')}</span>}
      </p>
      {error && (
        <p class="turn-error">
          <strong>{error.message}</strong> <code>{error.code}</code>
        </p>
      )}
      {typeof message === 'string' && message && <Markdown text={message} />}
      {outcome.data !== null && outcome.data !== undefined && <Json value={outcome.data} label={t('result')} />}
      {outcome.retry_of && (
        <p>
          {t('retry_of')} <a href={to('calls', outcome.retry_of)}>{shortId(outcome.retry_of)}</a>
        </p>
      )}
      {outcome.dedupe_of && (
        <p>
          {t('joined_with')} <a href={to('calls', outcome.dedupe_of)}>{shortId(outcome.dedupe_of)}</a>
        </p>
      )}
    </div>
  );
}

function Taint({ taint }: { taint: Explanation['taint'] }) {
  if (!taint?.length) return <p class="muted">{t('taint_none')}</p>;
  return (
    <>
      <p>{t('taint_text')}</p>
      <ul>
        {taint.map((source) => {
          const { tool, job_id } = source as { tool?: string; job_id?: string };
          return <li>{job_id ? <a href={to('calls', job_id)}>{tool ?? shortId(job_id)}</a> : (tool ?? JSON.stringify(source))}</li>;
        })}
      </ul>
    </>
  );
}

function Body({ detail, reload }: { detail: Detail; reload: () => Promise<void> }) {
  const { call, explanation } = detail;
  const usage = explanation.usage as unknown as Usage | null | undefined;
  const showAnswer = useSignal(false);
  return (
    <div class="call-detail" data-testid="call-explain">
      <header class="detail-head">
        <h2>{call.tool_name}</h2>
        <Status status={call.status} />
      </header>
      <Actions call={call} reload={reload} />
      <Facts
        rows={[
          [t('id'), <code title={call.id}>{call.id}</code>],
          [t('created'), dateTime(call.created_at)],
          [t('took'), duration(call.took_ms)],
          [t('effect'), word(call.effect)],
          [t('runner'), word(call.runner)],
          [t('attempts'), number(call.attempt)],
          [t('price'), usage ? `${money(typeof usage.cost_usd === 'number' ? usage.cost_usd * 1e9 : null)} · ${t('tokens_n', { count: number(usage.total_tokens) })}` : t('free')],
          [t('turn'), <a href={to('turns', call.turn_id)}>{t('timeline')}</a>],
          ...(call.conversation_id ? ([[t('conversation'), <a href={to('chat', call.conversation_id)}>{t('open')}</a>]] as [string, ComponentChildren][]) : []),
        ]}
      />
      <Part title={t('outcome')}>
        <OutcomePart explanation={explanation} />
      </Part>
      <Part title={t('arguments')}>
        <Arguments call={call} explanation={explanation} />
      </Part>
      <Part title={t('permission')}>
        <Permission explanation={explanation} />
      </Part>
      <Part title={t('attempts')}>
        <Attempts explanation={explanation} />
      </Part>
      <Part title={t('taint')} open={(explanation.taint?.length ?? 0) > 0}>
        <Taint taint={explanation.taint} />
      </Part>
      {explanation.message && (
        <Part title={t('message_before')} open={false}>
          <p class="raw-text">{explanation.message.content}</p>
          {explanation.model_answer && (
            <button type="button" class="button quiet" aria-expanded={showAnswer.value} onClick={() => (showAnswer.value = !showAnswer.value)}>
              {t('model_answer')}
            </button>
          )}
          {showAnswer.value && <Json value={explanation.model_answer} label={t('model_answer')} />}
        </Part>
      )}
      <Part title={t('events_n', { count: explanation.events.length })} open={false}>
        <ol class="events">
          {explanation.events.map((event) => (
            <li>
              <span class="muted">{time(event.created_at)}</span> <strong>{event.type}</strong>
              <Json value={event.data} label={event.type} />
            </li>
          ))}
        </ol>
      </Part>
    </div>
  );
}

export function CallDetail({ id }: { id: string }) {
  const detail = useResource((signal) => load(id, signal), [id], { kinds: ['call'], id });
  return <Loaded of={detail}>{(data) => <Body detail={data} reload={detail.reload} />}</Loaded>;
}
