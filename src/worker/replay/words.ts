/** Words of replayed text: short, plain, all different. Token ids depend on their order: append only. */
const TEXT = `
about above across after again air all almost along also always among and animal another answer any apple around arrow ask autumn away
back bag ball bank barn base basket bay bear beautiful because become bed bee before begin behind bell below bench best better between
big bird black blue boat body bone book both bottom box branch bread bridge bright bring brother brown build burn busy but by call calm
camp candle care carry cat cause chair change child circle city clay clean clear climb clock close cloth cloud coat cold colour come
common cook copper corn corner cotton count country course cover cow cross crowd cup cut dance dark day deep desk dinner dish door down
draw dream dress drink drive drop dry dust each ear early earth east easy edge egg eight empty end engine enough equal even evening ever
every example eye face fact fall family far farm fast father feather feel few field fill find fine finger fire first fish five flag flat
float floor flower fly follow food foot forest forget form forward four fresh friend from front fruit full game garden gate gather gentle
give glass gold good grass gray great green ground group grow half hand happy harbour hard hat have head hear heart heavy help here high
hill hold hole home honey horse hot hour house how hundred ice idea inside iron island join jump just keep key kind king kitchen know
ladder lake lamp land language large last late laugh leaf learn leather left letter level light like line list listen little live long
look loose lose low lunch machine make many map mark market meadow meal measure meet metal middle milk mind minute mirror money month moon
more morning most mother mountain mouth move much music must name narrow near neck needle nest never new next night nine noise north nose
note nothing now number oak ocean off often oil old once one only open orange order other out over page paint pair paper part pass past
path pattern peace pen people piece place plain plan plant play pocket point pool poor pot present press pretty print pull push quick
quiet rain raise reach read ready real red rest rice rich ride right ring rise river road rock roof room root rope rose round row run
sail salt same sand save school sea season second see seed send set seven shade shape sharp sheep shell shine ship shoe shop short
shoulder show side silver simple sing sister sit six skin sky sleep slow small smile smoke smooth snow soap soft soil some song soon
sound south space speak spoon spring square stand star start stay steel step stick still stone stop store story straight street string
strong sugar summer sun sweet swim table tail take tall tea tell ten tent thank that then there thick thin thing think third this
thousand three through ticket time tired today together tomorrow tooth top touch town trade train tree true try turn twelve two under
until use valley very village visit voice wait walk wall warm wash watch water wave way weather week weight well west wet wheel when
white why wide wild wind window winter wire wise with woman wonder wood wool word work world write yard year yellow yes young`

export const WORDS: readonly string[] = TEXT.trim().split(/\s+/)
