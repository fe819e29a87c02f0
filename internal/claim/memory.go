package claim

// memory are the terms of a store that lives in the plugin process.
var memory = Terms{Exceptions: []Exception{
	{
		Rules: []Rule{Survives}, All: []Condition{PluginDied},
		Why: "the store is in that process and dies with it. Holders are told within a second, with the cause `plugin died`, and later tokens are higher, because they begin at the clock",
	},
}}
