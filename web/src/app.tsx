/** The frame of the page: navigation, the person acted for, and the view of the address. */
import { useEffect, useLayoutEffect } from 'preact/hooks';
import type { FunctionComponent } from 'preact';
import { useSignal } from '@preact/signals';
import { actingFor, api, signedOut } from './api/client';
import { live, startHints } from './api/hints';
import { language, t } from './i18n';
import type { Texts } from './i18n/en';
import { Empty, ErrorBox, Page } from './parts/basics';
import { Icon, type IconName } from './parts/icons';
import { LanguageAndTheme } from './parts/preferences';
import { useResource } from './resource';
import { BASE, open, segments, to } from './router';
import { actFor, fullName, isAdmin, loadSession, people, picksPerson, session, sessionError, signOut } from './session';
import { ApprovalsView } from './views/approvals';
import { AuditView } from './views/audit';
import { CallsView } from './views/calls';
import { ChatView } from './views/chat/chat';
import { KnowledgeView } from './views/knowledge';
import { OutboxView } from './views/outbox';
import { PeopleView } from './views/people';
import { SignInView } from './views/signin';
import { ToolsView } from './views/tools';
import { TurnView } from './views/turn';
import { UsageView } from './views/usage';

interface NavItem {
  path: string;
  icon: IconName;
  text: keyof Texts;
  view: FunctionComponent;
  admin?: boolean;
}

const NAV: NavItem[] = [
  { path: 'chat', icon: 'chat', text: 'nav_chat', view: ChatView },
  { path: 'calls', icon: 'calls', text: 'nav_calls', view: CallsView },
  { path: 'approvals', icon: 'approvals', text: 'nav_approvals', view: ApprovalsView },
  { path: 'tools', icon: 'tools', text: 'nav_tools', view: ToolsView },
  { path: 'knowledge', icon: 'knowledge', text: 'nav_knowledge', view: KnowledgeView },
  { path: 'usage', icon: 'usage', text: 'nav_usage', view: UsageView },
  { path: 'people', icon: 'people', text: 'nav_people', view: PeopleView, admin: true },
  { path: 'outbox', icon: 'outbox', text: 'nav_outbox', view: OutboxView, admin: true },
  { path: 'audit', icon: 'audit', text: 'nav_audit', view: AuditView, admin: true },
];

/** How many approvals wait; shown beside their entry, because somebody waits for each of them. */
function WaitingApprovals() {
  const list = useResource((signal) => api.get('/api/approvals', { query: { status: 'pending', limit: 100 }, signal }), [], { kinds: ['approval'] });
  const count = list.data.value?.approvals.length ?? 0;
  if (!count) return null;
  return (
    <span class="count">
      {count === 100 ? '99+' : count}
      <span class="visually-hidden"> {t('waiting')}</span>
    </span>
  );
}

function Nav({ current, close }: { current: string; close: () => void }) {
  return (
    <ul class="nav-list">
      {NAV.filter((item) => !item.admin || isAdmin.value).map((item) => (
        <li>
          <a href={to(item.path)} data-testid={`nav-${item.path}`} aria-current={current === item.path ? 'page' : undefined} onClick={close}>
            <Icon name={item.icon} />
            <span>{t(item.text)}</span>
            {item.path === 'approvals' && <WaitingApprovals />}
          </a>
        </li>
      ))}
      <li>
        <a href="/docs" target="_blank" rel="noopener" data-testid="nav-docs">
          <Icon name="book" />
          <span>{t('nav_docs')}</span>
        </a>
      </li>
    </ul>
  );
}

function PersonPicker() {
  if (!picksPerson.value || !people.value.length) return session.value?.name ? <span class="person">{session.value.name}</span> : null;
  return (
    <label class="person">
      <span class="muted">{t('acting_for')}</span>
      <select class="small" data-testid="person" value={actingFor.value ?? ''} onChange={(event) => actFor(event.currentTarget.value)}>
        {people.value
          .filter((user) => user.active)
          .map((user) => (
            <option value={String(user.id)}>{fullName(user)}</option>
          ))}
      </select>
    </label>
  );
}

function Frame() {
  const current = segments.value[0] ?? 'chat';
  const menu = useSignal(false);
  useEffect(startHints, [actingFor.value]);
  useLayoutEffect(() => {
    if (!segments.value.length || segments.value[0] === 'signin') open(to('chat'), true);
  }, [segments.value[0]]);
  const item = NAV.find((one) => one.path === current);
  const View = current === 'turns' ? TurnView : item?.view;
  const title = item ? t(item.text) : current === 'turns' ? t('turn') : t('not_found');
  useEffect(() => {
    document.title = `${title} · Werkruf`;
  }, [title]);
  return (
    <div class={`frame ${menu.value ? 'menu-open' : ''}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById('main')?.focus())}>
        {t('skip')}
      </a>
      <header class="top">
        <button type="button" class="button quiet small menu-button" aria-expanded={menu.value} aria-controls="nav" onClick={() => (menu.value = !menu.value)}>
          <Icon name="menu" />
          <span class="visually-hidden">{t('menu')}</span>
        </button>
        <a class="brand" href={to('chat')}>
          <img src={`${BASE}/favicon.svg`} alt="" width="24" height="24" />
          <span>Werkruf</span>
        </a>
        {!live.value && <span class="offline" role="status">{t('not_live')}</span>}
        <span class="grow" />
        <PersonPicker />
        <LanguageAndTheme />
        <button type="button" class="button quiet small" data-testid="signout" onClick={() => void signOut()}>
          <Icon name="leave" />
          <span class="signout-text">{t('signout')}</span>
        </button>
      </header>
      <nav class="side" id="nav" aria-label={t('navigation')}>
        <Nav current={current} close={() => (menu.value = false)} />
      </nav>
      <main id="main" tabIndex={-1} key={`${current}:${language.value}`}>
        {View ? (
          <View />
        ) : (
          <Page title={t('not_found')}>
            <Empty icon="search" title={t('not_found')}>
              <a href={to('chat')}>{t('nav_chat')}</a>
            </Empty>
          </Page>
        )}
      </main>
    </div>
  );
}

export function App() {
  useEffect(() => void loadSession(), []);
  if (sessionError.value) {
    return (
      <main class="signin">
        <ErrorBox error={sessionError.value} retry={() => void loadSession()} />
      </main>
    );
  }
  if (session.value && !signedOut.value) return <Frame />;
  return signedOut.value ? <SignInView /> : null;
}
