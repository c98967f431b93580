/** Entry of the dashboard: renders the page and connects to the gateway. */
import { render } from 'preact'
import { App } from './app.tsx'
import { watchScheme } from './colours.ts'
import { follow } from './follow.ts'
import { address } from './state.ts'

addEventListener('hashchange', () => (address.value = location.hash))
watchScheme()
render(<App />, document.getElementById('app')!)
void follow()
