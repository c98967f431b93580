import { describe, expect, it } from 'vitest'
import { allKeys } from './schema/json-schema.ts'
import { loadSettings } from './load.ts'
import { MASK, masked } from './mask.ts'
import { partsOf, valueAt } from './paths.ts'
import { asJson, asYaml } from './show.ts'

const env = {
  ELDR_API_KEYS: 'sk-one,sk-two',
  ELDR_ADMIN_TOKEN: 'sk-three',
  ELDR_WORKER_API_KEY: 'sk-four',
  OTEL_EXPORTER_OTLP_HEADERS: 'key=sk-five',
}

describe('masked settings', () => {
  it('hide every secret that the schema marks', async () => {
    const { settings } = await loadSettings({ env })
    const secrets = allKeys().filter(({ node }) => node.writeOnly || node.items?.writeOnly)
    expect(secrets.length).toBe(4)
    for (const { name } of secrets) {
      expect([valueAt(settings, partsOf(name))].flat().join()).toContain('sk-')
      expect(new Set([valueAt(masked(settings), partsOf(name))].flat())).toEqual(new Set([MASK]))
    }
  })

  it('hide secrets as YAML and as JSON, and show their origins', async () => {
    const loaded = await loadSettings({ env })
    for (const text of [asYaml(loaded), JSON.stringify(asJson(loaded))]) {
      expect(text).not.toContain('sk-')
      for (const name of Object.keys(env)) expect(text).toContain(name)
    }
  })

  it('equal the settings if there are no secrets', async () => {
    const { settings } = await loadSettings({})
    expect(masked(settings)).toEqual(settings)
    expect(masked(settings).server).not.toHaveProperty('adminToken')
  })
})
