/** Chat: the conversation on one side, what the assistant really did on the other. */
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { useSignal } from '@preact/signals';
import { actingFor, api } from '../../api/client';
import type { Conversation } from '../../api/types';
import { moment } from '../../format';
import { t, word } from '../../i18n';
import { ActionButton, Empty, ErrorBox, Loaded } from '../../parts/basics';
import { Icon } from '../../parts/icons';
import { useResource } from '../../resource';
import { open, segments, to } from '../../router';
import { isAdmin } from '../../session';
import { CallDetail } from '../call';
import { TurnDetail } from '../turn';
import { cancelTurn, chatError, conversationId, openConversation, reset, running, sending, sendMessage, turns, watchHints } from './conversation';
import { TurnView } from './turn-view';
import { isOver } from './turns';

const EXAMPLES = ['example_requests', 'example_worktime', 'example_whoami', 'example_todos'] as const;

function ConversationList({ current, close }: { current: string | null; close: () => void }) {
  const list = useResource(
    (signal) => api.get('/api/conversations', { query: { order: 'desc', limit: 100, user_id: isAdmin.value ? (actingFor.value ?? undefined) : undefined }, signal }),
    [current],
    { kinds: ['turn'] },
  );
  return (
    <nav class="conversations" id="conversations" aria-label={t('conversations')} onClick={(event) => (event.target as Element).closest('a') && close()}>
      <a class="button wide" href={to('chat')} data-testid="chat-new">
        <Icon name="plus" />
        {t('new_conversation')}
      </a>
      <Loaded of={list}>
        {({ conversations }) =>
          conversations.length ? (
            <ul>
              {conversations.map((conversation: Conversation) => (
                <li key={conversation.id}>
                  <a href={to('chat', conversation.id)} aria-current={conversation.id === current ? 'page' : undefined}>
                    <span class="conversation-title">{conversation.title || t('untitled')}</span>
                    <span class="muted">
                      {moment(conversation.updated_at)}
                      {conversation.channel !== 'web' && ` · ${word(conversation.channel)}`}
                    </span>
                  </a>
                </li>
              ))}
            </ul>
          ) : (
            <p class="muted pad">{t('no_conversations')}</p>
          )
        }
      </Loaded>
    </nav>
  );
}

function Composer({ onSend }: { onSend: (text: string) => Promise<boolean> }) {
  const text = useSignal('');
  const box = useRef<HTMLTextAreaElement>(null);
  const busy = sending.value || running.value;
  const submit = async () => {
    const message = text.value.trim();
    if (!message || busy) return;
    text.value = '';
    if (!(await onSend(message))) text.value = message;
    box.current?.focus();
  };
  useEffect(() => box.current?.focus(), []);
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <label class="visually-hidden" for="chat-input">
        {t('your_message')}
      </label>
      <textarea
        id="chat-input"
        data-testid="chat-input"
        ref={box}
        rows={2}
        maxLength={200_000}
        placeholder={t('message_placeholder')}
        value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            void submit();
          }
        }}
      />
      {running.value && <ActionButton kind="danger" icon="stop" testid="chat-cancel" label={t('cancel')} action={cancelTurn} />}
      <button type="submit" class="button primary" data-testid="chat-send" disabled={busy}>
        <Icon name="send" />
        {t('send')}
      </button>
    </form>
  );
}

/** Keeps the end in sight while an answer grows, unless the person scrolled up to read. */
function useStickToEnd() {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const shown = turns.value;
  useEffect(() => {
    if (box.current && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  const onScroll = () => {
    const element = box.current;
    if (element) atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < 80;
  };
  return { box, onScroll };
}

type Shown = { kind: 'turn' | 'call'; id: string } | null;

function Inspector({ shown, latest, close }: { shown: Shown; latest: string | null; close: () => void }) {
  const target = shown ?? (latest ? { kind: 'turn' as const, id: latest } : null);
  return (
    <aside class="inspector" aria-label={t('what_happened')}>
      {shown && (
        <button type="button" class="button quiet small" onClick={close}>
          <Icon name="back" />
          {t('latest_turn')}
        </button>
      )}
      {!target && <Empty icon="calls" title={t('what_happened')}>{t('inspector_empty')}</Empty>}
      {target?.kind === 'turn' && <TurnDetail key={target.id} id={target.id} compact />}
      {target?.kind === 'call' && <CallDetail key={target.id} id={target.id} />}
    </aside>
  );
}

export function ChatView() {
  const wanted = segments.value[1] ?? null;
  const shown = useSignal<Shown>(null);
  const listOpen = useSignal(false);
  const { box, onScroll } = useStickToEnd();
  useEffect(watchHints, []);
  useLayoutEffect(() => {
    shown.value = null;
    if (wanted) void openConversation(wanted);
    else if (conversationId.value || turns.value.length) reset();
  }, [wanted, actingFor.value]);

  const send = async (message: string) => {
    shown.value = null;
    const id = await sendMessage(message);
    if (id && id !== wanted) open(to('chat', id), true);
    return id !== null;
  };
  const latest = turns.value.findLast((turn) => turn.id !== 'pending')?.id ?? null;
  return (
    <div class={`chat ${listOpen.value ? 'list-open' : ''}`}>
      <ConversationList current={wanted} close={() => (listOpen.value = false)} />
      <section class="thread" aria-label={t('conversation')}>
        <h1 class="visually-hidden">{t('nav_chat')}</h1>
        <div class="thread-bar">
          <button type="button" class="button small" aria-expanded={listOpen.value} aria-controls="conversations" onClick={() => (listOpen.value = !listOpen.value)}>
            {t('conversations')}
          </button>
          <a class="button small" href={to('chat')}>
            <Icon name="plus" />
            {t('new_conversation')}
          </a>
        </div>
        <div class="turns" ref={box} onScroll={onScroll} tabIndex={0} role="log" aria-label={t('messages')}>
          {!turns.value.length && !chatError.value && (
            <Empty icon="chat" title={t('chat_empty_title')}>
              <p>{t('chat_empty')}</p>
              <div class="examples">
                {EXAMPLES.map((key) => (
                  <button type="button" class="button" onClick={() => void send(t(key))}>
                    {t(key)}
                  </button>
                ))}
              </div>
            </Empty>
          )}
          {turns.value.map((turn, index) => (
            <TurnView
              key={index}
              turn={turn}
              version={turn.version}
              selected={shown.value?.kind === 'turn' && shown.value.id === turn.id && isOver(turn)}
              openCall={(job) => (shown.value = { kind: 'call', id: job })}
              select={(id) => (shown.value = { kind: 'turn', id })}
            />
          ))}
          {chatError.value && <ErrorBox error={chatError.value} />}
        </div>
        <Composer onSend={send} />
      </section>
      <Inspector shown={shown.value} latest={latest} close={() => (shown.value = null)} />
    </div>
  );
}
