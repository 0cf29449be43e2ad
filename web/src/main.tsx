import './styles/base.css'
import './styles/controls.css'
import './styles/data.css'
import { render } from 'preact'
import { App } from './app'
import { preferred, useTexts } from './i18n'
import { takeKey } from './lib/key'
import { applyTheme, read, storedTheme } from './lib/theme'

takeKey()
applyTheme(storedTheme())
const language = preferred(read('crane.language'), navigator.languages)
void useTexts(language).catch(() => useTexts('en')).then(() => render(<App />, document.getElementById('app')!))
