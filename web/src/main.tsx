import { render } from 'preact';
import { App } from './app';
import { followLinks } from './router';
import './settings';
import './styles/tokens.css';
import './styles/base.css';
import './styles/frame.css';
import './styles/controls.css';
import './styles/parts.css';
import './styles/chat.css';
import './styles/views.css';

const root = document.getElementById('app');
if (root) {
  followLinks(root);
  render(<App />, root);
}
