//! A server of terminals, facing a client that says what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::terminal_server(program));
