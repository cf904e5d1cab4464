//! A TCP/IP profile of any bytes, and of words of the language in any order.

use host::config::Source;
use host::profile::{FINDINGS_MAX, decode, import};
use host::system::System;

/// Words of the language, with blanks between them: what random bytes would not find.
const WORDS: &[&str] = &[
    "\n",
    ";",
    "\"",
    "* ",
    "DEVICE ",
    "LINK ",
    "HOME ",
    "GATEWAY ",
    "BEGINROUTES ",
    "ENDROUTES ",
    "ROUTE ",
    "INTERFACE ",
    "DEFINE ",
    "START ",
    "BSDROUTINGPARMS ",
    "ENDBSDROUTINGPARMS ",
    "DATABUFFERPOOLSIZE ",
    "DATABUFFERLIMITS ",
    "FIXEDPAGESTORAGEPOOL ",
    "TCPCONFIG ",
    "ASSORTEDPARMS ",
    "ENDASSORTEDPARMS ",
    "OBEY ",
    "PORT ",
    "DELETE ",
    "STRAT ",
    "A ",
    "B ",
    "C ",
    "L ",
    "M ",
    "HIPERS 7000 ",
    "OSD 0800 ",
    "CTC E20 ",
    "IUCV 0 0 C A ",
    "IUCV 0 0 TCPIP A ",
    "LCS x'BA0' ",
    "MPCIPA ",
    "VIRTUAL 0 ",
    "QDIOIP ",
    "QDIOETHERNET ",
    "CTC 1 ",
    "IUCV 0 ",
    "ETHERNET 0 ",
    "IPAQENET ",
    "IPAQIDIO ",
    "CPU 1 ",
    "MTU 8192 ",
    "IPADDR ",
    "10.1.0.5 ",
    "10.1.0.5/24 ",
    "10.1.0.1 ",
    "10.1.1.1/30 ",
    "10.1.1.2 ",
    "fd00::1 ",
    "fd00::2/64 ",
    "255.255.255.0 ",
    "0.255.0.0 ",
    "0.2.0.0 ",
    "172.19 ",
    "10.2.0.0/16 ",
    "HOST ",
    "= ",
    "DEFAULTNET ",
    "DEFAULT6 ",
    "DEFAULTSIZE ",
    "0 ",
    "10 ",
    "1500 ",
    "32760 ",
    "99999 ",
    "64K ",
    "TCPRCVBUFRSIZE ",
    "TRUE ",
    "DEVICE A HIPERS 1 LINK L QDIOIP A HOME 10.1.0.5/24 L START A ",
    "DEVICE B IUCV 0 0 C A LINK M IUCV 0 B HOME 10.1.1.1/30 M START B ",
];

/// Imports a profile: the bytes themselves, or, if the first is odd, the words that the others stand for.
///
/// # Panics
/// If the import gives another result the next time, if a system file that it makes is none, or if a finding is nowhere in the profile.
pub fn profile_import(program: &[u8]) {
    let bytes = match program.split_first() {
        Some((mode, words)) if mode % 2 == 1 => {
            let words = words.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]);
            words.collect::<String>().into_bytes()
        }
        _ => program.to_vec(),
    };
    let Ok(source) = decode("PROFILE", &bytes) else { return };
    let machine = "TCPIP".parse().expect("a name");
    let lines = source.text().matches('\n').count() + 1;
    let made = import(&source, machine);
    let findings = match &made {
        Ok(made) => &made.findings,
        Err(findings) => findings,
    };
    assert!(findings.len() <= FINDINGS_MAX + 1);
    for finding in findings {
        let error = &finding.error;
        assert!(error.line.is_some_and(|line| (1..=lines).contains(&line)), "{error}");
        assert!(error.span.end <= source.text().len(), "{error}");
        assert!(!error.to_string().chars().any(char::is_control), "{error:?}");
    }
    let again = import(&source, machine);
    assert_eq!(
        made.as_ref().ok().map(|made| &made.text),
        again.as_ref().ok().map(|made| &made.text)
    );
    let Ok(made) = made else { return };
    let system = System::parse(&Source::of("system.toml", &made.text));
    let system = system.unwrap_or_else(|error| panic!("{error}\n{}", made.text));
    assert!(system.warnings.is_empty(), "{:?}\n{}", system.warnings, made.text);
    assert_eq!((system.lans.len(), system.lines.len()), (made.lans, made.lines));
}
