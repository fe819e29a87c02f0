package claim

// memory has the exceptions of the memory backend, whose store lives in the plugin process.
var memory = Terms{Exceptions: []Exception{
	{Rules: []Rule{Survives}, All: []Condition{PluginDied}},
}}
