/** Outbox: messages to the outside that wait, were sent, or failed for good. */
import { api } from '../api/client';
import type { OutboxRow } from '../api/types';
import { moment, shortId } from '../format';
import { t, word } from '../i18n';
import { ActionButton, Empty, Field, Loaded, Page, Status } from '../parts/basics';
import { useResource } from '../resource';
import { query, setQuery, to } from '../router';

const STATUSES = ['dead', 'held', 'pending', 'sending', 'sent', 'delivered', 'read'] as const;

function Row({ row, reload }: { row: OutboxRow; reload: () => Promise<void> }) {
  const act = (path: '/api/outbox/{id}/retry' | '/api/outbox/{id}/release') => async () => {
    await api.post(path, { path: { id: row.id } });
    await reload();
  };
  return (
    <tr data-testid="outbox-row" data-id={row.id}>
      <td>
        <Status status={row.status} />
        {row.ambiguous && <span class="mark">{t('ambiguous')}</span>}
      </td>
      <td>{word(row.channel)}</td>
      <td>{row.recipient}</td>
      <td>{row.attempts}</td>
      <td>{row.error_code ? <span title={row.error ?? ''}><code>{row.error_code}</code></span> : '–'}</td>
      <td>{moment(row.created_at)}</td>
      <td>{row.turn_id ? <a href={to('turns', row.turn_id)}>{shortId(row.turn_id)}</a> : '–'}</td>
      <td>
        {row.status === 'dead' && <ActionButton label={t('retry')} testid="outbox-retry" action={act('/api/outbox/{id}/retry')} />}
        {row.status === 'held' && <ActionButton label={t('release')} action={act('/api/outbox/{id}/release')} />}
      </td>
    </tr>
  );
}

export function OutboxView() {
  const status = STATUSES.find((one) => one === query.value.get('status'));
  const list = useResource((signal) => api.get('/api/outbox', { query: { status, order: 'desc', limit: 200 }, signal }), [status], { kinds: ['outbox'] });
  return (
    <Page title={t('nav_outbox')} intro={t('outbox_intro')}>
      <form class="filters" onSubmit={(event) => event.preventDefault()}>
        <Field label={t('status')}>
          <select data-testid="outbox-filter-status" value={status ?? ''} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
            <option value="">{t('all')}</option>
            {STATUSES.map((one) => (
              <option value={one}>{word(one)}</option>
            ))}
          </select>
        </Field>
      </form>
      <Loaded of={list}>
        {({ outbox }) =>
          outbox.length ? (
            <div class="table-scroll" tabIndex={0} role="group" aria-label={t('nav_outbox')}>
              <table>
                <thead>
                  <tr>
                    {[t('status'), t('channel'), t('recipient'), t('attempts'), t('error'), t('created'), t('turn')].map((name) => (
                      <th scope="col">{name}</th>
                    ))}
                    <th scope="col">
                      <span class="visually-hidden">{t('action')}</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {outbox.map((row) => (
                    <Row key={row.id} row={row} reload={list.reload} />
                  ))}
                </tbody>
              </table>
            </div>
          ) : (
            <Empty icon="outbox" title={status ? t('nothing_found') : t('outbox_empty_title')}>
              {!status && t('outbox_empty')}
            </Empty>
          )
        }
      </Loaded>
    </Page>
  );
}
