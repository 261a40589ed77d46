#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("table_messages"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::table_messages, bytes);
});
