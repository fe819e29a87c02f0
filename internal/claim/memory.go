package claim

// memory has the terms of a store that lives in the plugin process.
var memory = Terms{Exceptions: []Exception{
	{Rules: []Rule{Survives}, All: []Condition{PluginDied}},
}}
