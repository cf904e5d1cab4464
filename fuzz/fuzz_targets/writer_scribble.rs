//! An honest sender facing a reader that does what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::writer_scribble(program));
