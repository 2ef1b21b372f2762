/** Approvals: what waits, for whom, and the decision. */
import { api } from '../api/client';
import type { Approval } from '../api/types';
import { dateTime, moment } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Empty, Facts, Field, Json, Loaded, Page, Status } from '../parts/basics';
import { useResource } from '../resource';
import { query, setQuery, to } from '../router';
import { personName } from '../session';

const STATUSES = ['pending', 'approved', 'denied', 'expired', 'canceled'] as const;

function Card({ approval, reload }: { approval: Approval; reload: () => Promise<void> }) {
  const decide = (decision: 'approve' | 'deny') => async () => {
    await api.post('/api/approvals/{id}', { path: { id: approval.id }, body: { decision } });
    await reload();
  };
  return (
    <article class="card" data-testid="approval" data-id={approval.id}>
      <header class="card-head">
        <h2>{approval.tool}</h2>
        <Status status={approval.status} />
      </header>
      <Facts
        rows={[
          ...(approval.server_label ? ([[t('provider_server'), approval.server_label]] as [string, string][]) : []),
          [t('asked_by'), personName(approval.asked_by)],
          [t('approver_roles'), approval.approver_roles.join(', ') || '–'],
          [t('asked_at'), moment(approval.created_at)],
          approval.decided_at ? [t('decided_by'), `${personName(approval.decided_by)} · ${moment(approval.decided_at)}`] : [t('expires'), dateTime(approval.expires_at)],
        ]}
      />
      <Json value={approval.arguments} label={t('arguments')} />
      {(approval.taint?.length ?? 0) > 0 && <p class="warn-note">{t('approval_tainted')}</p>}
      <div class="row">
        {approval.status === 'pending' && (
          <>
            <ActionButton kind="primary" icon="check" testid="approve" label={t('approve')} action={decide('approve')} />
            <ActionButton kind="danger" icon="close" testid="deny" label={t('deny')} action={decide('deny')} />
          </>
        )}
        <a href={to('calls', approval.job_id)}>{t('open_call')}</a>
        {approval.conversation_id && <a href={to('chat', approval.conversation_id)}>{t('open_conversation')}</a>}
      </div>
    </article>
  );
}

export function ApprovalsView() {
  const wanted = query.value.get('status') ?? 'pending';
  const status = STATUSES.find((one) => one === wanted) ?? 'all';
  const list = useResource((signal) => api.get('/api/approvals', { query: { status: status === 'all' ? undefined : status, order: 'desc', limit: 200 }, signal }), [status], {
    kinds: ['approval'],
  });
  return (
    <Page title={t('nav_approvals')} intro={t('approvals_intro')}>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Field label={t('status')}>
          <select value={status} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
            {STATUSES.map((one) => (
              <option value={one}>{word(one)}</option>
            ))}
            <option value="all">{t('all')}</option>
          </select>
        </Field>
      </form>
      <Loaded of={list}>
        {({ approvals }) =>
          approvals.length ? (
            <div class="cards">
              {approvals.map((approval) => (
                <Card key={approval.id} approval={approval} reload={list.reload} />
              ))}
            </div>
          ) : (
            <Empty icon="approvals" title={status === 'pending' ? t('approvals_empty_title') : t('nothing_found')}>
              {status === 'pending' && t('approvals_empty')}
            </Empty>
          )
        }
      </Loaded>
    </Page>
  );
}
