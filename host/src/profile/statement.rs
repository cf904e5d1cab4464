//! The tables of a profile's language: which statements, types of devices and links, and options there are, and what becomes of each.
//!
//! In a name, small letters at the end may be left out, as z/OS allows. `docs/import.md` has the same tables for people.

use super::word::Word;

/// A statement.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) name: &'static str,
    /// The keyword that ends it. Otherwise the next statement does.
    pub(super) end: Option<&'static str>,
    pub(super) fate: Fate,
}

/// What becomes of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Device,
    Link,
    Home,
    Gateway,
    Routes,
    RoutingParms,
    Interface,
    Start,
    DataBuffers,
    DataBufferLimits,
    FixedPages,
    /// Its operands are settings, some of which become something.
    Settings(&'static [Setting]),
    /// It is left out, for this reason.
    LeftOut(&'static str),
    /// As `LeftOut`, and all of its line belongs to it: its operands may be names of statements.
    LineLeftOut(&'static str),
    /// What it asks for is so anyway.
    Nothing,
}

/// A keyword of a list of settings.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// Words after it that belong to it.
    pub(super) operands: usize,
    pub(super) becomes: Becomes,
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// The processor of the interface's driver.
    Cpu,
    /// The MTU of the interface.
    Mtu,
    /// An address of the interface, with its network.
    Address,
    /// The buffers of a connection.
    ConnectionBuffers,
    /// Packets are passed on between interfaces: left out.
    Forwarding,
    /// They are not.
    NoForwarding,
    /// It is left out, for this reason.
    LeftOut(&'static str),
    /// What it asks for is so anyway.
    Nothing,
}

/// A type of device.
#[derive(Debug)]
pub(super) struct DeviceType {
    pub(super) name: &'static str,
    pub(super) operands: &'static [Operand],
    /// Words after the operands are options. Otherwise they are not known here, as nothing becomes of the device.
    pub(super) has_options: bool,
}

/// An operand of a DEVICE statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A hexadecimal number.
    Address,
    /// The name of the guest at the other end.
    User,
    /// Some word that means nothing here.
    Word(&'static str),
}

/// A type of link.
#[derive(Debug)]
pub(super) struct LinkType {
    pub(super) name: &'static str,
    /// A number stands before the name of its device.
    pub(super) has_number: bool,
    /// Types of devices that it is a link of.
    pub(super) devices: &'static [&'static str],
    pub(super) medium: Medium,
}

/// What carries the packets of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// A LAN in memory.
    HiperSockets,
    /// A real adapter, for which a LAN stands in.
    Adapter,
    Iucv,
    Ctc,
    /// None: it is left out, for this reason.
    None(&'static str),
}

/// Finds the row of a table that a word names.
pub(super) fn find<'t, T>(table: &'t [T], word: &Word<'_>, name: fn(&T) -> &str) -> Option<&'t T> {
    table.iter().find(|row| word.is(name(row)))
}

const fn statement(name: &'static str, fate: Fate) -> Statement {
    Statement { name, end: None, fate }
}

const fn block(name: &'static str, end: &'static str, fate: Fate) -> Statement {
    Statement { name, end: Some(end), fate }
}

const fn setting(name: &'static str, operands: usize, becomes: Becomes) -> Setting {
    Setting { name, operands, becomes }
}

// Reasons that stand at several places.
const ACKNOWLEDGES: &str = "the stack decides when it acknowledges";
const COUNTERS: &str = "counters are always kept: siga query and siga export";
const IN_TABLE: &str = "members of a LAN are found in its table";
const LOW_PORTS: &str = "ports below 1024 are as others";
const MODERATION: &str = "moderation of an adapter's input cannot be said yet";
const NO_CLAW: &str = "there is no CLAW";
const NO_IPSEC: &str = "there is no IPsec";
const NO_MOVING: &str = "there are no virtual addresses, which move between machines";
const NO_SPEED: &str = "a LAN has no speed that could be set";
const NO_SYSPLEX: &str = "there is no sysplex";
const NO_TLS: &str = "there is no TLS server: programs do it themselves";
const NO_VIRTUAL: &str = "there are no virtual addresses";
const OF_SOCKETS: &str = "sockets set it for themselves";
const ONE_ROUTE: &str = "there is one route to each network";
const OWN_TIMES: &str = "the stack has times of its own";
const PASSED_ON: &str = "packets are passed on by siga route";
const PATH_MTU: &str = "the MTU of a path is always found out";
const ROUND_TRIPS: &str = "the stack measures round trips";
const WRITTEN_OUT: &str = "addresses of IPv6 are written out";

const AS_NEEDED: Fate = Fate::LeftOut("the stack allocates these as they are needed");
const PEOPLE: Fate = Fate::LeftOut("the users of guests are a matter of users = [..] of [[guest]]");
const SERVERS: Fate = Fate::LeftOut("a host starts no programs: a supervisor like systemd does");
const TELNET: Fate = Fate::LeftOut("there is no Telnet server");
const TRACING: Fate = Fate::LineLeftOut("siga capture shows the frames of a LAN");
const SNMP: Fate = Fate::LeftOut("there is no agent of SNMP: siga export has the counters");
const PORTS: Fate = Fate::LeftOut("a port belongs to the client that listens at it first");
const TLS: Fate = Fate::LeftOut(NO_TLS);
const ATM: Fate = Fate::LeftOut("there is no ATM");
const ROUTING: Fate = Fate::LeftOut("there are no routing protocols: routes are those of the file");
const VIPA: Fate = Fate::LeftOut(NO_MOVING);
const ACCESS: Fate =
    Fate::LeftOut("which guests reach what is said by members and outside_to of [[lan]]");
const MONITOR: Fate = Fate::LeftOut(COUNTERS);
const PER_ADDRESS: Fate = Fate::LeftOut("limits are for each client, not for each address");

/// All statements.
pub(super) const STATEMENTS: &[Statement] = &[
    statement("DEVice", Fate::Device),
    statement("LINK", Fate::Link),
    statement("HOME", Fate::Home),
    statement("GATEWAY", Fate::Gateway),
    block("BEGINRoutes", "ENDRoutes", Fate::Routes),
    block("BSDRoutingparms", "ENDBSDRoutingparms", Fate::RoutingParms),
    statement("INTERFace", Fate::Interface),
    statement("START", Fate::Start),
    statement("DATABUFFERPOOLSIZE", Fate::DataBuffers),
    statement("DATABUFFERLIMITS", Fate::DataBufferLimits),
    statement("FIXEDPAGESTORAGEPOOL", Fate::FixedPages),
    statement("TCPCONFig", Fate::Settings(TCPCONFIG)),
    statement("IPCONFig", Fate::Settings(IPCONFIG)),
    block("ASSORTEDPARMS", "ENDASSORTEDPARMS", Fate::Settings(ASSORTEDPARMS)),
    // Pools.
    statement("ACBPOOLSIZE", AS_NEEDED),
    statement("ADDRESSTRANSLATIONPOOLSIZE", AS_NEEDED),
    statement("CCBPOOLSIZE", AS_NEEDED),
    statement("ENVELOPEPOOLSIZE", AS_NEEDED),
    statement("IPROUTEPOOLSIZE", AS_NEEDED),
    statement("LARGEENVELOPEPOOLSIZE", AS_NEEDED),
    statement("NCBPOOLSIZE", AS_NEEDED),
    statement("RCBPOOLSIZE", AS_NEEDED),
    statement("SCBPOOLSIZE", AS_NEEDED),
    statement("SKCBPOOLSIZE", AS_NEEDED),
    statement("SMALLDATABUFFERPOOLSIZE", AS_NEEDED),
    statement("TCBPOOLSIZE", AS_NEEDED),
    statement("TINYDATABUFFERPOOLSIZE", AS_NEEDED),
    statement("UCBPOOLSIZE", AS_NEEDED),
    // Users, servers, ports.
    block("INFORM", "ENDINFORM", PEOPLE),
    block("OBEY", "ENDOBEY", PEOPLE),
    block("PERMIT", "ENDPERMIT", PEOPLE),
    block("RESTRICT", "ENDRESTRICT", PEOPLE),
    block("AUTOLog", "ENDAUTOLog", SERVERS),
    statement("PORT", PORTS),
    statement("PORTRange", PORTS),
    block("INTERNALCLIENTPARMS", "ENDINTERNALCLIENTPARMS", TELNET),
    block("BEGINVTAM", "ENDVTAM", TELNET),
    block("TELNETGLOBALS", "ENDTELNETGLOBALS", TELNET),
    block("TELNETPARMS", "ENDTELNETPARMS", TELNET),
    statement("TN3270E", TELNET),
    statement("SSLSERVERID", TLS),
    statement("SSLLIMITS", TLS),
    block("SYSCONTACT", "ENDSYSCONTACT", SNMP),
    block("SYSLOCATION", "ENDSYSLOCATION", SNMP),
    statement("SACONFig", SNMP),
    block("NETACCess", "ENDNETACCess", ACCESS),
    block("BLOCK", "ENDBLOCK", ACCESS),
    block("IPSEC", "ENDIPSEC", Fate::LeftOut(NO_IPSEC)),
    // Addresses, routes, timers.
    statement(
        "PRIMARYINTERFACE",
        Fate::LeftOut("a client's own address is that of the interface it sends over"),
    ),
    statement(
        "ARPAGE",
        Fate::LeftOut("members of a LAN are found in its table, which does not age"),
    ),
    statement("ARP", Fate::LeftOut(IN_TABLE)),
    statement(
        "TRANSLATE",
        Fate::LeftOut("the table of a LAN has its members; mac of [[lan.member]] fixes one"),
    ),
    statement("PATHMTUAGE", Fate::LeftOut("what is found of a path's MTU is kept for 10 minutes")),
    statement(
        "ICMPERRORLIMIT",
        Fate::LeftOut("the stack has a limit of its own on errors of ICMP"),
    ),
    block("KEEPALIVEOPTIONS", "ENDKEEPALIVEOPTIONS", Fate::LeftOut(OF_SOCKETS)),
    statement("SOMAXCONN", Fate::LeftOut("a listener asks for its own backlog")),
    statement("ROUTERADV", ROUTING),
    statement("ROUTERADVPREFIX", ROUTING),
    block(
        "DEFADDRTABLE",
        "ENDDEFADDRTABLE",
        Fate::LeftOut("a packet's source is an address of its interface"),
    ),
    block(
        "SRCIP",
        "ENDSRCIP",
        Fate::LeftOut(
            "a packet's source is an address of its interface, or the one that a client binds",
        ),
    ),
    block("VIPADYNAMIC", "ENDVIPADYNAMIC", VIPA),
    block("VIPASMPARMS", "ENDVIPASMPARMS", VIPA),
    statement("FOREIGNIPCONNECTIONLIMIT", PER_ADDRESS),
    statement("PENDINGCONNECTIONLIMIT", PER_ADDRESS),
    statement("PERSISTCONNECTIONLIMIT", PER_ADDRESS),
    statement("UDPCONFig", Fate::LeftOut("a socket's buffers are part of the client's")),
    statement("IPCONFIG6", Fate::LeftOut("each interface has IPv6 if it has such an address")),
    statement("GLOBALCONFig", MONITOR),
    statement("VSWITCH", Fate::LeftOut("a LAN needs no controller")),
    statement("STOP", Fate::LeftOut("an interface that is not wanted is not described")),
    statement("ATMARPSV", ATM),
    statement("ATMLIS", ATM),
    statement("ATMPVC", ATM),
    // Tracing, records, files.
    statement("TRACE", TRACING),
    statement("MORETRACE", TRACING),
    statement("LESSTRACE", TRACING),
    statement("NOTRACE", Fate::Nothing),
    block("TRACEONLY", "ENDTRACEONLY", TRACING),
    statement("ITRACE", TRACING),
    statement("PKTTRACE", TRACING),
    statement("OSAENTA", TRACING),
    statement("PACKETTRACESIZE", TRACING),
    statement("SCREEN", Fate::Nothing),
    statement("NOSCREEN", Fate::Nothing),
    statement("FILE", TRACING),
    statement("TIMESTAMP", TRACING),
    statement("MONITORRECORDS", MONITOR),
    statement("NETMONitor", MONITOR),
    statement("SMFCONFig", MONITOR),
    statement("SMFPARMS", MONITOR),
    statement("DATASETPREFIX", Fate::LeftOut("there are no data sets")),
    statement("HOSTNAME", Fate::LeftOut("a guest has the name by which it attaches")),
    statement("DELETE", Fate::LineLeftOut("what is not wanted is not described")),
    statement(
        "INCLUDE",
        Fate::LineLeftOut(
            "statements of another file are not read: put them here, and import again",
        ),
    ),
];

const NO_PORT_NAME: Becomes = Becomes::LeftOut("a LAN has no port names");
const BY_ADDRESS: Becomes = Becomes::LeftOut(
    "a frame goes to the member that has its address; routers of [[lan]] may pass packets on",
);
const NO_VLAN: Becomes =
    Becomes::LeftOut("the LAN is for this interface's network alone, without a tag");
const QUEUES: Becomes = Becomes::LeftOut("inbound workload queuing cannot be said yet");
const NO_SMC: Becomes = Becomes::LeftOut("there is no shared memory communication of SMC");

/// Options of DEVICE, LINK and INTERFACE.
pub(super) const OPTIONS: &[Setting] = &[
    setting("CPU", 1, Becomes::Cpu),
    setting("MTU", 1, Becomes::Mtu),
    setting("IPADDR", 1, Becomes::Address),
    setting("ADDADDR", 1, Becomes::Address),
    setting("PORTNAME", 1, NO_PORT_NAME),
    setting("PORTNUMBER", 1, NO_PORT_NAME),
    setting("PORTNUM", 1, NO_PORT_NAME),
    setting("CHPID", 1, Becomes::Nothing),
    setting("CHPIDTYPE", 1, Becomes::Nothing),
    setting("PRIROUTER", 0, BY_ADDRESS),
    setting("SECROUTER", 0, BY_ADDRESS),
    setting("NONROUTER", 0, Becomes::Nothing),
    setting("AUTORESTART", 0, Becomes::Nothing),
    setting(
        "NOAUTORESTART",
        0,
        Becomes::LeftOut("an interface comes back when its LAN or line does"),
    ),
    setting("IP", 0, Becomes::Nothing),
    setting("ETHERNET", 0, Becomes::Nothing),
    setting("VLAN", 1, NO_VLAN),
    setting("VLANID", 1, NO_VLAN),
    setting("DYNVLANREG", 0, NO_VLAN),
    setting("NODYNVLANREG", 0, Becomes::Nothing),
    setting("FWD", 0, Becomes::Forwarding),
    setting("NOFWD", 0, Becomes::NoForwarding),
    setting("PATHMTU", 0, Becomes::Nothing),
    setting("NOPATHMTU", 0, Becomes::LeftOut(PATH_MTU)),
    setting("IPBCAST", 0, Becomes::Nothing),
    setting("CHECKSUM", 0, Becomes::LeftOut("checksums are left out where both ends are memory")),
    setting("NOCHECKSUM", 0, Becomes::Nothing),
    setting("IFSPEED", 1, Becomes::LeftOut(NO_SPEED)),
    setting("IFHSPEED", 1, Becomes::LeftOut(NO_SPEED)),
    setting("SECCLASS", 1, Becomes::LeftOut(NO_IPSEC)),
    setting("MONSYSPLEX", 0, Becomes::LeftOut(NO_SYSPLEX)),
    setting("NOMONSYSPLEX", 0, Becomes::Nothing),
    setting("INBPERF", 1, Becomes::LeftOut(MODERATION)),
    setting("WORKLOADQ", 0, QUEUES),
    setting("NOWORKLOADQ", 0, Becomes::Nothing),
    setting("OLM", 0, Becomes::LeftOut(MODERATION)),
    setting("NOOLM", 0, Becomes::Nothing),
    setting("READSTORAGE", 1, Becomes::LeftOut("a path's storage grows as it is needed")),
    setting("IOBUFFERSIZE", 1, Becomes::LeftOut("a line's buffer follows from its MTU")),
    setting("NOIOBUFFERSIZE", 0, Becomes::Nothing),
    setting("VMAC", 0, Becomes::LeftOut("each member of a LAN has a MAC address of its own")),
    setting("ROUTEALL", 0, Becomes::Nothing),
    setting("ROUTELCL", 0, Becomes::Nothing),
    setting("ISOLATE", 0, Becomes::LeftOut("members of [[lan]] says who may be on it")),
    setting("NOISOLATE", 0, Becomes::Nothing),
    setting("SOURCEVIPAINTERFACE", 1, Becomes::LeftOut(NO_VIRTUAL)),
    setting("SOURCEVIPAINT", 1, Becomes::LeftOut(NO_VIRTUAL)),
    setting("INTFID", 1, Becomes::LeftOut(WRITTEN_OUT)),
    setting("TEMPPREFIX", 1, Becomes::LeftOut(WRITTEN_OUT)),
    setting("SMCR", 0, NO_SMC),
    setting("NOSMCR", 0, Becomes::Nothing),
    setting("SMCD", 0, NO_SMC),
    setting("NOSMCD", 0, Becomes::Nothing),
    setting("NETMAN", 0, Becomes::Nothing),
    setting("LIS", 1, Becomes::Nothing),
];

const TCPCONFIG: &[Setting] = &[
    setting("TCPSENDBFRsize", 1, Becomes::ConnectionBuffers),
    setting("TCPRCVBUFRsize", 1, Becomes::ConnectionBuffers),
    setting(
        "TCPMAXRCVBUFRsize",
        1,
        Becomes::LeftOut("a connection's buffers do not grow beyond their size"),
    ),
    setting("RESTRICTLOWports", 0, Becomes::LeftOut(LOW_PORTS)),
    setting("UNRESTRICTLOWports", 0, Becomes::Nothing),
    setting(
        "SENDGARBAGE",
        1,
        Becomes::LeftOut("probes that keep a connection alive carry no data"),
    ),
    setting("INTERVAL", 1, Becomes::LeftOut(OF_SOCKETS)),
    setting("FINWAIT2TIME", 1, Becomes::LeftOut(OWN_TIMES)),
    setting("TTLS", 0, Becomes::LeftOut(NO_TLS)),
    setting("NOTTLS", 0, Becomes::Nothing),
];

const IPCONFIG: &[Setting] = &[
    setting("DATAGRAMFWD", 0, Becomes::Forwarding),
    setting("NODATAGRAMFWD", 0, Becomes::NoForwarding),
    setting("SYSPLEXROUTING", 0, Becomes::LeftOut(NO_SYSPLEX)),
    setting("NOSYSPLEXROUTING", 0, Becomes::Nothing),
    setting("VARSUBNETTING", 0, Becomes::Nothing),
    setting("DYNAMICXCF", 3, Becomes::LeftOut(NO_SYSPLEX)),
    setting("SOURCEVIPA", 0, Becomes::LeftOut(NO_VIRTUAL)),
    setting("NOSOURCEVIPA", 0, Becomes::Nothing),
    setting("MULTIPATH", 0, Becomes::LeftOut(ONE_ROUTE)),
    setting("NOMULTIPATH", 0, Becomes::Nothing),
    setting("PATHMTUDISCOVERY", 0, Becomes::Nothing),
    setting("NOPATHMTUDISCOVERY", 0, Becomes::LeftOut(PATH_MTU)),
    setting("QDIOACCELERATOR", 0, Becomes::LeftOut(PASSED_ON)),
    setting("IQDIOROUTING", 0, Becomes::LeftOut(PASSED_ON)),
    setting("IPSECURITY", 0, Becomes::LeftOut(NO_IPSEC)),
    setting("REASSEMBLYTIMEOUT", 1, Becomes::LeftOut(OWN_TIMES)),
    setting("TTL", 1, Becomes::LeftOut("the time to live of packets is 64")),
    setting("ARPTO", 1, Becomes::LeftOut(IN_TABLE)),
    setting("CLAWUSEDOUBLENOP", 0, Becomes::LeftOut(NO_CLAW)),
    setting("STOPONCLAWERROR", 0, Becomes::LeftOut(NO_CLAW)),
    setting("IGNOREREDIRECT", 0, Becomes::Nothing),
];

const ASSORTEDPARMS: &[Setting] = &[
    setting("NOFWD", 0, Becomes::NoForwarding),
    setting("FWD", 0, Becomes::Forwarding),
    setting("PATHMTU", 0, Becomes::Nothing),
    setting("NOPATHMTU", 0, Becomes::LeftOut(PATH_MTU)),
    setting("VARSUBNETTING", 0, Becomes::Nothing),
    setting("NOUDPQUEUELIMIT", 0, Becomes::LeftOut("what waits for a client is limited")),
    setting("UDPQUEUELIMIT", 0, Becomes::Nothing),
    setting("RESTRICTLOWPORTS", 0, Becomes::LeftOut(LOW_PORTS)),
    setting("PERMITTEDUSERSONLY", 0, Becomes::LeftOut("clients of [[tcpip]] says who may use it")),
    setting("SOURCEVIPA", 0, Becomes::LeftOut(NO_VIRTUAL)),
    setting("EQUALCOSTMULTIPATH", 0, Becomes::LeftOut(ONE_ROUTE)),
    setting("EQUALCOSTIPV6MULTIPATH", 0, Becomes::LeftOut(ONE_ROUTE)),
    setting("IGNOREREDIRECT", 0, Becomes::Nothing),
    setting("IGNOREIPV6REDIRECT", 0, Becomes::Nothing),
    setting("CHECKCONSISTENCY", 0, Becomes::Nothing),
    setting("NOCHECKCONSISTENCY", 0, Becomes::Nothing),
    setting("DELAYACKS", 0, Becomes::Nothing),
    setting("NODELAYACKS", 0, Becomes::LeftOut(ACKNOWLEDGES)),
    setting("OVERRIDEPRECEDENCE", 0, Becomes::Nothing),
    setting("NOTIMESTAMPS", 0, Becomes::LeftOut("timestamps are negotiated for each connection")),
    setting("TCPIPSTATISTICS", 0, Becomes::LeftOut(COUNTERS)),
    setting("SECURELOCAL", 0, Becomes::LeftOut(NO_TLS)),
];

const fn device(name: &'static str, operands: &'static [Operand]) -> DeviceType {
    DeviceType { name, operands, has_options: true }
}

const fn other_device(name: &'static str) -> DeviceType {
    DeviceType { name, operands: &[], has_options: false }
}

/// All types of devices.
pub(super) const DEVICE_TYPES: &[DeviceType] = &[
    device("OSD", &[Operand::Address]),
    device("HIPERS", &[Operand::Address]),
    device("CTC", &[Operand::Address]),
    device(
        "IUCV",
        &[
            Operand::Word("0"),
            Operand::Word("0"),
            Operand::User,
            Operand::Word("A or B, which of the two sides it is"),
        ],
    ),
    device("LCS", &[Operand::Address]),
    device("VIRTual", &[Operand::Word("0")]),
    device("MPCIPA", &[]),
    device("MPCPTP", &[]),
    device("MPCOSA", &[]),
    other_device("ATM"),
    other_device("CDLC"),
    other_device("CLAW"),
    other_device("DDN1822"),
    other_device("HCH"),
    other_device("HPPI"),
    other_device("LOCALVIPA"),
    other_device("PVMIUCV"),
    other_device("SNAIUCV"),
    other_device("SNALU62"),
    other_device("X25ICA"),
    other_device("X25NPSI"),
];

const VIRTUAL: Medium = Medium::None(NO_MOVING);
pub(super) const OTHER: Medium = Medium::None("there are no devices of this type");

const fn link(
    name: &'static str,
    has_number: bool,
    devices: &'static [&'static str],
    medium: Medium,
) -> LinkType {
    LinkType { name, has_number, devices, medium }
}

/// All types of links.
pub(super) const LINK_TYPES: &[LinkType] = &[
    link("QDIOETHERNET", false, &["OSD"], Medium::Adapter),
    link("QDIOTR", false, &["OSD"], Medium::Adapter),
    link("QDIOIP", false, &["HIPERS"], Medium::HiperSockets),
    link("IPAQENET", false, &["MPCIPA"], Medium::Adapter),
    link("IPAQTR", false, &["MPCIPA"], Medium::Adapter),
    link("IPAQIDIO", false, &["MPCIPA"], Medium::HiperSockets),
    link("OSAENET", true, &["MPCOSA"], Medium::Adapter),
    link("OSAFDDI", true, &["MPCOSA"], Medium::Adapter),
    link("ETHERNET", true, &["LCS"], Medium::Adapter),
    link("802.3", true, &["LCS"], Medium::Adapter),
    link("ETHEROR802.3", true, &["LCS"], Medium::Adapter),
    link("IBMTR", true, &["LCS"], Medium::Adapter),
    link("FDDI", true, &["LCS"], Medium::Adapter),
    link("CTC", true, &["CTC"], Medium::Ctc),
    link("IUCV", true, &["IUCV", "PVMIUCV"], Medium::Iucv),
    link("VIRTual", true, &["VIRTual"], VIRTUAL),
    link("MPCPTP", false, &["MPCPTP"], OTHER),
    link("ATM", false, &["ATM"], OTHER),
    link("CDLC", true, &["CDLC"], OTHER),
    link("DDN1822", true, &["DDN1822"], OTHER),
    link("HCH", true, &["HCH"], OTHER),
    link("HPPI", true, &["HPPI"], OTHER),
    link("IP", true, &["CLAW"], OTHER),
    link("SAMEHOST", true, &["SNAIUCV", "SNALU62", "X25NPSI"], OTHER),
    link("X25", true, &["X25ICA"], OTHER),
];

/// Types of the INTERFACE statement.
pub(super) const INTERFACE_TYPES: &[(&str, Medium)] = &[
    ("IPAQENET", Medium::Adapter),
    ("IPAQENET6", Medium::Adapter),
    ("EQENET", Medium::Adapter),
    ("EQENET6", Medium::Adapter),
    ("IPAQIDIO", Medium::HiperSockets),
    ("IPAQIDIO6", Medium::HiperSockets),
    ("MPCPTP6", OTHER),
    ("LOOPBACK6", Medium::None("the stack has a loopback interface")),
    ("VIRTUAL", VIRTUAL),
    ("VIRTUAL6", VIRTUAL),
];

/// Options of ROUTE that come after the MTU.
pub(super) const ROUTE_OPTIONS: &[Setting] = &[
    setting("MTU", 1, Becomes::Mtu),
    setting("REPLaceable", 0, Becomes::Nothing),
    setting("NOREPLaceable", 0, Becomes::Nothing),
    setting("MAXImumretransmittime", 1, Becomes::LeftOut(ROUND_TRIPS)),
    setting("MINImumretransmittime", 1, Becomes::LeftOut(ROUND_TRIPS)),
    setting("ROUNDTRIPgain", 1, Becomes::LeftOut(ROUND_TRIPS)),
    setting("VARIANCEGain", 1, Becomes::LeftOut(ROUND_TRIPS)),
    setting("VARIANCEMultiplier", 1, Becomes::LeftOut(ROUND_TRIPS)),
    setting("DELAYAcks", 0, Becomes::Nothing),
    setting("NODELAYAcks", 0, Becomes::LeftOut(ACKNOWLEDGES)),
];

#[cfg(test)]
mod tests {
    use super::super::word::words;
    use super::*;

    #[test]
    fn no_name_hides_another() {
        for (at, row) in STATEMENTS.iter().enumerate() {
            let word = &words(row.name).words[0];
            let found = STATEMENTS.iter().position(|other| word.is(other.name));
            assert_eq!(found, Some(at), "{}", row.name);
        }
        for table in [OPTIONS, TCPCONFIG, IPCONFIG, ASSORTEDPARMS, ROUTE_OPTIONS] {
            for (at, row) in table.iter().enumerate() {
                let word = &words(row.name).words[0];
                let found = table.iter().position(|other| word.is(other.name));
                assert_eq!(found, Some(at), "{}", row.name);
            }
        }
    }

    #[test]
    fn each_link_has_its_device() {
        for device in LINK_TYPES.iter().flat_map(|link| link.devices) {
            assert!(DEVICE_TYPES.iter().any(|known| known.name == *device), "{device}");
        }
    }
}
