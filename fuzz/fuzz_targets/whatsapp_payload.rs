#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    werkruf::properties::whatsapp_payload(bytes);
});
