//! The service of a TCPIP machine and an honest client of it, facing a client that says what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::tcpip_service(program));
