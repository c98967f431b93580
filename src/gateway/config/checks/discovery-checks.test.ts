import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { failure, temporaryFolder } from '../../../../test/trace-support.ts'
import { dnsTargetOf, isDnsServer, dnsTargetProblem } from '../dns-target.ts'
import { loadSettings } from '../load.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const path = join(folder.path, 'eldr.yaml')

async function problems(discovery: string): Promise<readonly string[]> {
  writeFileSync(path, `discovery: {${discovery}}`)
  return (await failure(path, () => loadSettings({ file: path }))).detail.problems!.map(line =>
    line.replace(`${path}:`, ''),
  )
}
async function warnings(discovery: string): Promise<readonly string[]> {
  writeFileSync(path, `discovery: {${discovery}}`)
  return (await loadSettings({ file: path })).warnings.map(line => line.replace(`${path}:`, ''))
}
const both = 'prefillSelector: [a=p], decodeSelector: [a=d]'

describe('invalid discovery settings', () => {
  it.each([
    [
      'dns: {}',
      '1:18: discovery.dns has no name to look up: set discovery.dns.prefill (--dns-prefill) or discovery.dns.decode (--dns-decode)',
    ],
    [
      'dns: {decode: "grpc://a.b:1"}',
      '1:27: discovery.dns.decode: expected a name to look up such as http://decode.llm.svc.cluster.local:8000 or srv://_http._tcp.decode.llm.svc.cluster.local, found the scheme grpc',
    ],
    [
      'dns: {decode: "http://10.0.0.1:80"}',
      '1:27: discovery.dns.decode: 10.0.0.1 is an IP address: list it under workers',
    ],
    [
      'dns: {decode: "http://a:1", server: dns.example}',
      '1:49: discovery.dns.server: expected an address such as 10.96.0.10 or [fd00::10]:53',
    ],
    [
      'file: {pollMs: 1}',
      '1:19: discovery.file.path is missing: expected the path of a YAML or JSON file with the lists prefill and decode',
    ],
    [
      'kubernetes: {enabled: true, decodeSelector: [a=b]}',
      '1:25: discovery.kubernetes.prefillSelector is missing: set the labels of the EndpointSlices (--prefill-selector app=vllm role=…)',
    ],
    [
      'kubernetes: {enabled: true, prefillSelector: [a=b]}',
      '1:25: discovery.kubernetes.decodeSelector is missing: set the labels of the EndpointSlices (--decode-selector app=vllm role=…)',
    ],
    [
      'kubernetes: {enabled: true, prefillSelector: [a=b, c=d], decodeSelector: [c=d, a=b]}',
      '1:86: discovery.kubernetes.decodeSelector equals prefillSelector: a worker cannot have both roles',
    ],
    [
      'kubernetes: {enabled: true, prefillSelector: [a=b, a=c], decodeSelector: [a=d]}',
      '1:58: discovery.kubernetes.prefillSelector requires two values of a: no EndpointSlice has both',
    ],
    [
      'kubernetes: {prefillSelector: ["app in (a)"]}',
      '1:44: discovery.kubernetes.prefillSelector[0]: expected a label such as app=vllm, one per item, found "app in (a)"',
    ],
    [
      `kubernetes: {enabled: true, ${both}, apiUrl: "ftp://a"}`,
      '1:96: discovery.kubernetes.apiUrl: expected an http or https URL such as https://10.0.0.1:6443',
    ],
    [
      `kubernetes: {enabled: true, ${both}, namespace: "../x"}`,
      '1:99: discovery.kubernetes.namespace: expected the name of a namespace, found "../x"',
    ],
  ])('%s', async (text, expected) => {
    expect(await problems(text)).toEqual([expected])
  })
})

describe('valid discovery settings', () => {
  it('count as a source of workers, so that no warning about missing workers is given', async () => {
    expect(await warnings('file: {path: w.yaml}')).toEqual([])
    expect(await warnings(`kubernetes: {enabled: true, ${both}}`)).toEqual([])
    expect(await warnings('dns: {decode: "http://a.b:1"}')).toEqual([
      'no prefill workers: set workers.prefill (--prefill)',
    ])
  })

  it('cause warnings for ignored selectors and for an unencrypted token', async () => {
    expect(await warnings(`kubernetes: {${both}}, file: {path: w.yaml}`)).toEqual([
      '1:25: discovery.kubernetes is ignored: set discovery.kubernetes.enabled (--service-discovery)',
    ])
    const open = (url: string) =>
      warnings(`kubernetes: {enabled: true, ${both}, tokenFile: t, apiUrl: "${url}"}`)
    expect(await open('http://10.0.0.1:8001')).toEqual([
      expect.stringContaining('the token is sent unencrypted'),
    ])
    expect(await open('http://127.0.0.1:8001')).toEqual([])
  })
})

describe('DNS servers', () => {
  it('are IP addresses with an optional port', () => {
    for (const right of ['10.96.0.10', '10.96.0.10:5353', '[fd00::10]', '[::1]:53'])
      expect(isDnsServer(right)).toBe(true)
    for (const wrong of [
      '',
      'a',
      '999.1.1.1',
      '1.2.3',
      '10.0.0.1:0',
      '10.0.0.1:70000',
      'fd00::10',
      '[fd00::zz]',
    ])
      expect(isDnsServer(wrong)).toBe(false)
  })
})

describe('DNS targets', () => {
  it('have a scheme for the record type, and a port for address records', () => {
    expect(dnsTargetOf('http://decode.llm.svc:8000')).toEqual({
      name: 'decode.llm.svc',
      kind: 'address',
      protocol: 'http:',
      port: 8000,
    })
    expect(dnsTargetOf('https://decode.llm.svc')).toEqual({
      name: 'decode.llm.svc',
      kind: 'address',
      protocol: 'https:',
      port: 443,
    })
    expect(dnsTargetOf('srv://_http._tcp.decode.llm.svc')).toEqual({
      name: '_http._tcp.decode.llm.svc',
      kind: 'srv',
      protocol: 'http:',
    })
    expect(dnsTargetOf('srv+https://_x._tcp.a.b')).toEqual({
      name: '_x._tcp.a.b',
      kind: 'srv',
      protocol: 'https:',
    })
  })

  it.each([
    'decode.llm:8000',
    'srv://a.b:80',
    'http://u:p@a.b',
    'http://a.b/v1',
    'http://[::1]:80',
    'srv://a..b',
    'srv://',
    `srv://${'a'.repeat(64)}.b`,
  ])('are refused if invalid: %s', text => expect(dnsTargetProblem(text)).toEqual(expect.any(String)))
})
