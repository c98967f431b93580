import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { FakeKube } from '../../../test/discovery/fake-kube.ts'
import { HAS_OPENSSL, makeCertificates } from '../../../test/gateway/tls-files.ts'
import { failure, temporaryFolder } from '../../../test/trace-support.ts'
import { LookupFailure } from './source.ts'
import { kubeAccess, KubeClient } from './kube-client.ts'

const folder = temporaryFolder()
afterAll(() => folder.remove())
const ACCOUNT = '/var/run/secrets/kubernetes.io/serviceaccount'
const PATH = '/apis/discovery.k8s.io/v1/endpointslices?labelSelector=a%3Db'

async function textOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

describe('access to the Kubernetes API', () => {
  it('comes from the environment of the pod, with its service account', () => {
    const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '6443' }
    expect(kubeAccess({}, env)).toEqual({
      url: 'https://10.96.0.1:6443',
      tokenFile: `${ACCOUNT}/token`,
      caFile: `${ACCOUNT}/ca.crt`,
    })
    expect(kubeAccess({ tokenFile: 't' }, { KUBERNETES_SERVICE_HOST: 'fd00::1' })).toEqual({
      url: 'https://[fd00::1]:443',
      tokenFile: 't',
      caFile: `${ACCOUNT}/ca.crt`,
    })
  })

  it('comes from the settings, without the credentials of the pod', () => {
    const env = { KUBERNETES_SERVICE_HOST: '10.96.0.1' }
    expect(kubeAccess({ apiUrl: 'https://rancher.example/k8s/clusters/c-1/' }, env)).toEqual({
      url: 'https://rancher.example/k8s/clusters/c-1',
    })
  })

  it('is required', async () => {
    expect((await failure('KUBERNETES_SERVICE_HOST', () => kubeAccess({}, {}))).code).toBe(
      'ELDR_CONFIG_INVALID',
    )
  })
})

describe.runIf(HAS_OPENSSL)('TLS', () => {
  it('uses the current content of the CA file', async () => {
    const pairs = makeCertificates('first', 'second')
    const caFile = join(folder.path, 'ca.crt')
    const serve = ({ certFile, keyFile }: typeof pairs.first, port?: number) =>
      FakeKube.start({ cert: readFileSync(certFile, 'utf8'), key: readFileSync(keyFile, 'utf8') }, port)
    let kube = await serve(pairs.first)
    const { port } = kube
    const client = new KubeClient({ url: `https://127.0.0.1:${port}`, caFile })
    const get = async () => textOf(await client.get(PATH, 1_000, new AbortController().signal))
    const problem = async () => ((await get().catch((error: unknown) => error)) as LookupFailure).problem
    expect(await problem()).toMatchObject({ reason: 'unreadable', text: expect.stringContaining(caFile) })
    writeFileSync(caFile, readFileSync(pairs.second.certFile))
    expect(await problem()).toMatchObject({ reason: 'unreachable' })
    writeFileSync(caFile, readFileSync(pairs.first.certFile))
    expect(await get()).toContain('EndpointSliceList')
    await kube.close()
    kube = await serve(pairs.second, port)
    expect(await problem()).toMatchObject({ reason: 'unreachable' })
    writeFileSync(caFile, readFileSync(pairs.second.certFile))
    expect(await get()).toContain('EndpointSliceList')
    client.close()
    await kube.close()
    pairs.remove()
  })
})
